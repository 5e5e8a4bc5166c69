// Attention of a few positions to all that came before them, whose keys and values are kept.
#pragma once
#include "ops/attention.h"
#include "ops/carry.h"

namespace adjoint {

// Operands are q, keys, values, the origin and then those of attention's options: the bias, the
// sinks, and the segments of all positions. `all` is the same attention with a query at every
// position; its operands are numbered as if there were no origin. In a ring the key of a position
// has the row of its remainder: a window's keys are there, and those before them are not.
struct CachedAttentionOperands {
  AttentionOperands all;
  int64_t queries;
  bool ring;

  explicit CachedAttentionOperands(const OpCall& call);  // Error

  static constexpr int kOrigin = 3;
  // Which operand of the call an operand of `all` is; -1 stays -1.
  static int place(int operand) { return operand < kOrigin ? operand : operand + 1; }
};

// Attention's own rule for a few positions: keys and values are kept, and it becomes this op.
std::vector<Value> carry_attention(CarryCall& carry);

}  // namespace adjoint
