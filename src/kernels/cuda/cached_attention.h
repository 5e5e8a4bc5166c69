// Attention of a few queries to kept keys and values, on a GPU.
#pragma once
#include "kernels/cuda/attention_plain.h"

namespace adjoint {

// `workspace` as CachedAttentionLayout says. MachineError.
PlainLaunch prepare_cached_attention(const AttentionPlaces& places, void* workspace,
                                     CUstream_st* stream);

}  // namespace adjoint
