// y = a / b
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_div = {
    .name = "div",
    .summary = "a / b",
    .params = {{"a"}, {"b"}},
    .body = [](const OpCall&) { return binary_body([](Expr a, Expr b) { return a / b; }); },
    .samples =
        [] {
          auto samples = two_operand_samples();
          for (Sample& s : samples) s.fills = {Sample::Fill::kNormal, Sample::Fill::kPositive};
          return samples;
        },
    .refused = two_operand_refusals,
};

}  // namespace adjoint
