// Attention by kernels of our own, for what cuDNN does not take: any float dtype, any length, heads
// of up to 256. Scores live in registers, a tile of them at a time. Sums run in an order that
// depends on the shape and the GPU alone.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "kernels/rows.h"
#include "ops/attention_shape.h"

namespace adjoint {

constexpr int64_t kPlainAttentionSize = 256;  // of a head, at most

// op_def.h's Launch, without the header: its exp and max would hide those of device code.
using PlainLaunch = std::function<void()>;

// Of the gradient: a number of the wide dtype per query.
Bytes attention_grad_plain_workspace(const AttentionShape& shape);

PlainLaunch prepare_attention_plain(const AttentionShape& shape, Rows q, Rows k, Rows v, Rows out,
                                    void* lse, cudaStream_t stream);
PlainLaunch prepare_attention_grad_plain(const AttentionShape& shape, Rows q, Rows k, Rows v,
                                         Rows out, const void* lse, Rows dout, Rows dq, Rows dk,
                                         Rows dv, void* workspace, cudaStream_t stream);

}  // namespace adjoint
