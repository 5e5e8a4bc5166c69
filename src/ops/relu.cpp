// y = max(x, 0)
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_relu = {
    .name = "relu",
    .summary = "max(x, 0)",
    .params = {{"x"}},
    .body =
        [](const OpCall&) {
          return unary_body([](Expr x) { return max(x, constant(*x.body, 0)); });
        },
    .samples = saturating_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
