// What the files of attention and of its gradient share: how operands are read
// (attention_operands.cpp), the meaning in smaller ops (attention_meaning.cpp) and the samples
// (attention_samples.cpp).
#pragma once
#include "ops/attention_shape.h"
#include "ops/builder.h"

namespace adjoint {

// Operands are q, k, v or one tensor with all three side by side, and then those of the options
// that a call has, in this order: the bias, the sinks, the segments, the random counter.
struct AttentionOperands {
  AttentionShape shape;
  bool packed = false;
  std::vector<Axis> lse_axes;
  int bias = -1, sinks = -1, segments = -1, counter = -1;  // which operand each is; -1: none

  // Checks the types of the leading `count` operands; Error.
  AttentionOperands(const OpCall& call, size_t count);

  size_t rows() const { return packed ? 1 : 3; }  // operands that hold q, k and v
};

// How many operands of attention_grad are those of attention; the others are its results and dout.
size_t attention_operands(const OpCall& gradient);

// The letters of the operands, and a map that knows what they hold: b samples, s positions, k heads
// of keys, g queries to each, d numbers, or e numbers of v and the result where these are others, n
// distances of the bias.
std::vector<std::string> attention_rows(const AttentionOperands& operands);
std::string attention_result(const AttentionOperands& operands);
IndexMap attention_letters(const AttentionOperands& operands);

// q, k and v by heads, and their scores: [batch, i, kv, group, size], [batch, j, kv, size] twice,
// [batch, kv, group, i, j]. Scores are scaled, then capped, and then the softmax's logits, which
// are -1e30 where a key is not seen; each of the three is the one before where no option makes the
// difference, but for a causal mask, which a plain attention's softmax has itself.
struct AttentionScores {
  AttentionOperands operands;
  Value q, k, v, scores, capped, logits;
  Value sinks = -1;     // [kv, group, 1, 1]
  Value distance = -1;  // [i, j, n]: 1 where that entry of the bias is theirs
};
AttentionScores attention_scores(Builder& builder, std::span<const Value> operands,
                                 const Attrs& attrs);
// [batch, kv, group, i, j] -> itself, less what dropout takes, for a call that has it.
Value attention_dropped(Builder& builder, const AttentionScores& scores,
                        std::span<const Value> operands, Value weights, const Attrs& attrs);
std::vector<Value> attention_meaning(Builder& builder, std::span<const Value> operands,
                                     const Attrs& attrs);
// The slope of a head, in a body over [batch, kv, group, i, j]: AttentionShape::slope as algebra.
Expr alibi_slope(Body& body, const AttentionShape& shape);
// [n, n] with ones on the diagonal: a product with it swaps the axes of a matrix.
Value attention_identity(Builder& builder, int64_t n, Dtype dtype);

std::vector<Sample> attention_samples();
std::vector<Sample> attention_refused();

}  // namespace adjoint
