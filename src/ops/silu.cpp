// y = x * sigmoid(x), the gate of SwiGLU (Shazeer, 2020): silu(g) * u.
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_silu = {
    .name = "silu",
    .summary = "x * sigmoid(x)",
    .params = {{"x"}},
    .body = [](const OpCall&) { return unary_body([](Expr x) { return x * sigmoid(x); }); },
    .samples = saturating_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
