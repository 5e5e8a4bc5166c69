// The sum of any number of operands of one shape, in their order.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_sum_all = {
    .name = "sum_all",
    .summary = "the sum of its operands, in order",
    .body =
        [](const OpCall& call) {
          if (call.inputs.empty()) fail("sum_all: wants at least one operand");
          Body body;
          Expr sum = input(body, 0);
          for (size_t i = 1; i < call.inputs.size(); ++i) {
            if (!same_shape(call.inputs[i], call.inputs[0])) {
              fail("sum_all: operands have one shape, found ", shape_string(call.inputs[i]),
                   " beside ", shape_string(call.inputs[0]));
            }
            sum = sum + input(body, static_cast<int>(i));
          }
          body.outputs = {{.node = sum.node}};
          return body;
        },
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({}), of({}), of({})}},
                                     {.inputs = {of({3, 5}), of({3, 5})}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}}, {.inputs = {of({3}), of({4})}}};
        },
};

}  // namespace adjoint
