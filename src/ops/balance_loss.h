// What balance_loss and its gradient ask of their operands.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Sequences of positions with a probability for each expert: [..., seq, experts].
struct BalanceShape {
  int64_t sequences = 0, positions = 0, experts = 0;
};
// A load is [..., experts], one for each sequence; [experts] where all rows are one sequence.
BalanceShape balance_shape(const Type& probabilities, const Type& load);
// Whether the loss is taken over the whole batch, as if it were one sequence.
bool balances_batch(const OpCall& call);
// Error where targets are not one i32 id for each position, which over a whole batch are one axis.
void check_balance_targets(const OpCall& call, int operand);

}  // namespace adjoint
