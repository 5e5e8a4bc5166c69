// Attention on CUDA: by cuDNN where it takes the shape, by kernels of our own where it does not.
// Nothing here needs CUDA's headers, and the functions of shapes alone need no CUDA either.
#pragma once
#include "kernels/attention_call.h"
#include "kernels/kernel.h"

struct CUstream_st;  // a cudaStream_t points to one

namespace adjoint {

// By shape; a call also wants pointers and steps that are multiples of 16 bytes, else the kernels
// of our own run it.
bool cudnn_takes(const AttentionShape& shape);

// How a call is made in a workspace that no cap forbids, on any device.
struct AttentionWay {
  bool cudnn = false;     // unless pointers or steps say otherwise; else our own kernels
  AttentionShape part;    // what one launch of cuDNN's plan works on: all of the call, or less
  Bytes workspace = {0};  // enough for our own kernels as well
};
AttentionWay attention_way(const AttentionShape& shape, Bytes cap);
// By cuDNN as many samples at once (or heads of keys, of one sample) as the cap leaves room for,
// and where it must be deterministic as keep its scores small. By our own kernels where not even
// one head has room, whose sums are the least that any way takes.
AttentionWay attention_grad_way(const AttentionShape& shape, bool deterministic, Bytes cap);

// out = softmax(q k^T / sqrt(size)) v; lse as attention_forward has it. MachineError.
Launch prepare_attention_cuda(const AttentionPlaces& places, void* workspace,
                              const AttentionWay& way, CUstream_st* stream);
Launch prepare_attention_grad_cuda(const AttentionGradPlaces& places, void* workspace,
                                   const AttentionWay& way, bool deterministic,
                                   CUstream_st* stream);

}  // namespace adjoint
