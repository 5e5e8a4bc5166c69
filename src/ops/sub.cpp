// y = a - b
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_sub = {
    .name = "sub",
    .summary = "a - b",
    .params = {{"a"}, {"b"}},
    .body = [](const OpCall&) { return binary_body([](Expr a, Expr b) { return a - b; }); },
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .samples = two_operand_samples,
    .refused = two_operand_refusals,
};

}  // namespace adjoint
