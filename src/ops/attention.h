// What attention and its gradient share: how operands are read, and the meaning in smaller ops.
#pragma once
#include "ops/attention_kernel.h"
#include "ops/builder.h"

namespace adjoint {

// Operands are q, k, v or one tensor with all three side by side.
struct AttentionOperands {
  AttentionShape shape;
  bool packed = false;
  std::vector<Axis> lse_axes;

  // Checks the types of the leading `count` operands; Error.
  AttentionOperands(const OpCall& call, size_t count);
  // The rows of q, k and v inside `pointers`, which are laid out by `strides`.
  std::array<Rows, 3> rows(std::span<const Strides> strides, std::span<void* const> pointers) const;
};

// q, k and v by heads, and their scores: [batch, i, kv, group, size], [batch, j, kv, size] twice,
// [batch, kv, group, i, j].
struct AttentionScores {
  AttentionShape shape;
  Value q, k, v, scores;
};
AttentionScores attention_scores(Builder& builder, std::span<const Value> operands,
                                 const Attrs& attrs);
Rows rows_of(const Strides& strides, void* data);

}  // namespace adjoint
