// What balance_loss and its gradient ask of their operands.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Sequences of positions with a probability for each expert: [..., seq, experts].
struct BalanceShape {
  int64_t sequences = 0, positions = 0, experts = 0;
};
BalanceShape balance_shape(const Type& probabilities);
// Error where targets are not one i32 id for each position.
void check_balance_targets(const OpCall& call, int operand);

}  // namespace adjoint
