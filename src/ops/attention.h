// What attention and its gradient share: how operands are read, and the meaning in smaller ops.
#pragma once
#include "ops/attention_shape.h"
#include "ops/builder.h"

namespace adjoint {

// Operands are q, k, v or one tensor with all three side by side.
struct AttentionOperands {
  AttentionShape shape;
  bool packed = false;
  std::vector<Axis> lse_axes;

  // Checks the types of the leading `count` operands; Error.
  AttentionOperands(const OpCall& call, size_t count);
};

// How many operands of attention_grad are those of attention; the others are its results and dout.
size_t attention_operands(const OpCall& gradient);

// The letters of the operands, and a map that knows what they hold: b samples, s positions, k heads
// of keys, g queries to each, d numbers.
std::vector<std::string> attention_rows(size_t count);
IndexMap attention_letters();

// q, k and v by heads, and their scores: [batch, i, kv, group, size], [batch, j, kv, size] twice,
// [batch, kv, group, i, j].
struct AttentionScores {
  AttentionShape shape;
  Value q, k, v, scores;
};
AttentionScores attention_scores(Builder& builder, std::span<const Value> operands,
                                 const Attrs& attrs);

}  // namespace adjoint
