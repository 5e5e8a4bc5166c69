// y = tanh(x)
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_tanh = {
    .name = "tanh",
    .summary = "tanh(x)",
    .params = {{"x"}},
    .body = [](const OpCall&) { return unary_body([](Expr x) { return tanh(x); }); },
    .samples = saturating_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
