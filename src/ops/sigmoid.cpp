// y = 1 / (1 + exp(-x))
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_sigmoid = {
    .name = "sigmoid",
    .summary = "1 / (1 + exp(-x))",
    .params = {{"x"}},
    .body = [](const OpCall&) { return unary_body([](Expr x) { return sigmoid(x); }); },
    .samples = saturating_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
