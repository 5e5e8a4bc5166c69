// Where the operands and results of attention and of its gradient are, whoever computes it.
#pragma once
#include "kernels/kernel.h"
#include "kernels/rows.h"
#include "ops/attention.h"

namespace adjoint {

struct AttentionPlaces {
  AttentionShape shape;
  Rows q, k, v, out;
  void* lse;
};
AttentionPlaces attention_places(const KernelCall& call, const Pointers& at);

struct AttentionGradPlaces {
  AttentionShape shape;
  Rows q, k, v, out, dout, dq, dk, dv;
  const void* lse;
};
AttentionGradPlaces attention_grad_places(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
