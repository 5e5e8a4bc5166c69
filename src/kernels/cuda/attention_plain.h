// Attention by kernels of our own, for what cuDNN does not take: any float dtype, any length, every
// option, heads of up to 256. Scores live in registers, a tile of them at a time. Sums run in an
// order that depends on the shape and the GPU alone.
#pragma once
#include <functional>

#include "base/bytes.h"
#include "kernels/attention_call.h"

struct CUstream_st;  // a cudaStream_t points to one

namespace adjoint {

constexpr int64_t kPlainAttentionSize = 256;  // of a head, at most

// op_def.h's Launch, without the header: its exp and max would hide those of device code.
using PlainLaunch = std::function<void()>;

// Of the gradient: a number of the wide dtype per query, and where there is a bias what blocks add
// to it.
Bytes attention_grad_plain_workspace(const AttentionShape& shape);

PlainLaunch prepare_attention_plain(const AttentionPlaces& places, CUstream_st* stream);
PlainLaunch prepare_attention_grad_plain(const AttentionGradPlaces& places, void* workspace,
                                         CUstream_st* stream);

// The parts of the gradient that other kernels of our own take as they are here. `sums` is a number
// of the wide dtype per query: dout . out.
PlainLaunch prepare_row_sums(const AttentionGradPlaces& places, void* sums, CUstream_st* stream);
// dbias and dsinks, where there are any; null where there are none.
PlainLaunch prepare_grad_of_tables(const AttentionGradPlaces& places, const void* sums,
                                   void* workspace, CUstream_st* stream);
Bytes grad_of_tables_workspace(const AttentionShape& shape);

}  // namespace adjoint
