// The shapes of a linear map whose matrix is chosen per row, as its kernels on every target need
// them.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// A row is a pair of a token (all axes before the choices) and one of its choices. An operand that
// lacks the axis of choices has one row for all choices of a token.
struct ExpertRows {
  int64_t tokens = 0, chosen = 0, experts = 0;
  int64_t count() const { return tokens * chosen; }
};

// y[row] = weight[choice[row]] x[row]; operands are x, weight, choice and maybe a bias.
struct ExpertLinearShape : ExpertRows {
  int64_t in = 0, out = 0;
  bool transposed = false;  // the weight is [experts, in, out]
  bool sum = false;         // over the choices of a token
  bool x_each = false;      // x has a row for each choice, not for each token
  bool bias = false;
};
ExpertLinearShape expert_linear_shape(const OpCall& call);

// sum over the rows of an expert of a[row, p] * b[row, q]; operands are a, b, choice, maybe an
// addend.
struct ExpertGradShape : ExpertRows {
  int64_t p = 0, q = 0;
  bool a_each = false, b_each = false;
  bool addend = false;
};
ExpertGradShape expert_grad_shape(const OpCall& call);

// Whether an operand has a row for each choice, [..., chosen, width], or one for each token,
// [..., width]. Error, in the name of the call's op, when it fits the choice in neither way.
bool has_row_per_choice(const OpCall& call, int operand, const Type& choice);

}  // namespace adjoint
