// y = by * x + plus
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_scale = {
    .name = "scale",
    .summary = "by * x + plus",
    .params = {{"x"}, {"by", Param::Kind::kNumber, "1"}, {"plus", Param::Kind::kNumber, "0"}},
    .body =
        [](const OpCall& call) {
          Body body;
          const Expr y = input(body, 0) * call.number("by", 1) + call.number("plus", 0);
          body.outputs = {{.node = y.node}};
          return body;
        },
    .linear =
        [](const OpCall& call) {
          return call.number("plus", 0) == 0 ? Linear::kTogether : Linear::kNo;
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5})}, .attrs = {{"by", -0.5}, {"plus", 2.0}}},
              {.inputs = {of({3, 5})}, .attrs = {{"by", -0.5}}}};
        },
    .refused = no_operand_refusal,
};

}  // namespace adjoint
