// The loss that people read: sum / count, 0 when nothing was counted.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_mean_loss = {
    .name = "mean_loss",
    .summary = "sum / count of the loss's pair",
    .body =
        [](const OpCall& call) {
          if (call.inputs.size() != 2) fail("mean_loss: wants a sum and a count");
          return binary_body(
              [](Expr sum, Expr count) { return sum / max(count, constant(*count.body, 1)); });
        },
    .differentiable = false,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({}), of({})},
                                      .fills = {Sample::Fill::kNormal, Sample::Fill::kPositive}}};
        },
    .refused = no_operand_refusal,
};

}  // namespace adjoint
