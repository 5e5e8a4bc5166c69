// Attention by tensor cores in kernels of our own, for 16-bit rows that cuDNN does not take: every
// option, heads of up to 256 that are multiples of 8, pointers and steps that are multiples of 16
// bytes. Blocks add to no row but their own, so the bits are the same every time. Where a GPU's
// blocks have too little shared memory, the plain kernels take over.
#pragma once
#include "kernels/cuda/attention_plain.h"

namespace adjoint {

bool tensor_takes(const AttentionPlaces& places);
bool tensor_takes(const AttentionGradPlaces& places);

PlainLaunch prepare_attention_tensor(const AttentionPlaces& places, CUstream_st* stream);
// In a workspace as attention_grad_plain_workspace says it.
PlainLaunch prepare_attention_grad_tensor(const AttentionGradPlaces& places, void* workspace,
                                          CUstream_st* stream);

}  // namespace adjoint
