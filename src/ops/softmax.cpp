// y = exp(x - max) / sum(exp(x - max)) over the last axis. The maximum only shifts, so it takes no
// part in the gradient.
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_softmax = {
    .name = "softmax",
    .summary = "exp(x) / sum(exp(x)) over the last axis; causal: only up to the row's own position",
    .params = {{"x"}, {"causal", Param::Kind::kFlag, "no"}},
    .body =
        [](const OpCall& call) {
          Body body;
          Expr x = input(body, 0);
          if (call.integer("causal", 0)) {
            // Row i of scores [..., i, j] sees j <= i + offset; the offset lets queries be the last
            // of a longer sequence.
            const Expr row = index_along(body, 1) + static_cast<double>(call.integer("offset", 0));
            x = select(less(row, index_along(body, 0)), constant(body, -1e30), x);
          }
          const Expr e = exp(x - row_max(x));
          body.outputs = {{.node = (e / row_sum(e)).node}};
          return body;
        },
    .samples =
        [] {
          auto samples = one_operand_samples();
          samples.push_back({.inputs = {of({2, 5, 5})}, .attrs = {{"causal", int64_t{1}}}});
          samples.push_back(
              {.inputs = {of({3, 7})}, .attrs = {{"causal", int64_t{1}}, {"offset", int64_t{4}}}});
          return samples;
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}},
                                     {.inputs = {of({3})}, .attrs = {{"causal", int64_t{1}}}}};
        },
};

}  // namespace adjoint
