// Attention on CUDA: by cuDNN where it takes the shape, by kernels of our own where it does not.
// Nothing here needs CUDA's headers, and the functions of shapes alone need no CUDA either.
#pragma once
#include "ops/attention_kernel.h"
#include "ops/op_def.h"

struct CUstream_st;  // a cudaStream_t points to one

namespace adjoint {

// By shape; a call also wants pointers and steps that are multiples of 16 bytes, else the kernels
// of our own run it.
bool cudnn_takes(const AttentionShape& shape);

// Enough for either way, on any device.
Bytes attention_cuda_workspace(const AttentionShape& shape);
Bytes attention_grad_cuda_workspace(const AttentionShape& shape, bool deterministic);

// What one launch of the gradient's plan works on: all of it, or where it must be deterministic as
// many samples (or heads of keys, of one sample) as keep cuDNN's scores small.
AttentionShape attention_grad_part(const AttentionShape& shape, bool deterministic);

// out = softmax(q k^T / sqrt(size)) v; lse as attention_forward has it. MachineError.
Launch prepare_attention_cuda(const AttentionShape& shape, Rows q, Rows k, Rows v, Rows out,
                              void* lse, void* workspace, Bytes workspace_bytes,
                              CUstream_st* stream);
Launch prepare_attention_grad_cuda(const AttentionShape& shape, Rows q, Rows k, Rows v, Rows out,
                                   const void* lse, Rows dout, Rows dq, Rows dk, Rows dv,
                                   void* workspace, Bytes workspace_bytes, bool deterministic,
                                   CUstream_st* stream);

}  // namespace adjoint
