#include "ops/loss_count.h"

#include "base/error.h"

namespace adjoint {

std::optional<LossCount> loss_count(const Morphism& loss) {
  CHECK(is_loss_term(loss), "only a loss counts targets");
  const OpDef& op = op_named(loss.op);
  if (static_cast<int>(loss.inputs.size()) <= op.targets) return std::nullopt;
  LossCount count{op.counted_by, loss.inputs[op.targets], {}};
  if (const auto ignore = loss.attrs.find("ignore"); ignore != loss.attrs.end()) {
    count.attrs.insert(*ignore);
  }
  return count;
}

}  // namespace adjoint
