// Where the operands and results of attention and of its gradient are, whoever computes it.
#pragma once
#include "kernels/attention_call.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

AttentionPlaces attention_places(const KernelCall& call, const Pointers& at);
AttentionPlaces cached_attention_places(const KernelCall& call, const Pointers& at);
AttentionGradPlaces attention_grad_places(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
