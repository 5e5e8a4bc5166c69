// y = exp(x)
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_exp = {
    .name = "exp",
    .summary = "exp(x)",
    .params = {{"x"}},
    .body = [](const OpCall&) { return unary_body([](Expr x) { return exp(x); }); },
    .samples = one_operand_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
