// What the cross entropy and its gradient share.
#pragma once
#include "ops/builder.h"
#include "ops/op_def.h"

namespace adjoint {

void check_cross_entropy_operands(const OpCall& call);  // Error

// What a cross entropy may be asked for beside its targets. As attributes they are written only
// where they are not 0.
struct CrossEntropyOptions {
  double smoothing = 0;  // the share of a target's one that all classes get alike
  double z = 0;          // times the square of a row's log-sum: it holds the sums near 1
  double cap = 0;        // logits x are first cap * tanh(x / cap)

  bool any() const { return smoothing > 0 || z > 0 || cap > 0; }
};
CrossEntropyOptions cross_entropy_options(const OpCall& call);  // Error

constexpr Dtype sums_of(Dtype logits) { return logits == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }

// Classes that one of several ranks has, in a body: logits [..., piece], targets [..., 1], and the
// rank's coordinate. Attributes say how many classes a `piece` has, and how many there are in all.
void check_class_piece(const OpCall& call, size_t operands);  // Error
struct ClassPiece {
  ClassPiece(Body& body, const OpCall& call, Expr logits, Expr targets, Expr coordinate);
  Expr is_class, is_target;  // a class at all, and not what pads the last piece; that of the row
  Expr logit;                // capped
};

// The loss is the likelihood of its targets from now on: without smoothing and the log-sums'
// square.
void drop_training_terms(Morphism& loss);

// What a loss takes the softmax of: its logits, soft-capped where it caps them. The builder's place
// stays.
Value softmax_operand(Builder& b, const Morphism& loss);

}  // namespace adjoint
