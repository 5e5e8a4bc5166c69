// Attention of a few queries to kept keys and values, on a GPU.
#pragma once
#include "kernels/cuda/attention_plain.h"

namespace adjoint {

struct CachedAttentionLaunch {
  void* workspace = nullptr;  // as CachedAttentionLayout says
  CUstream_st* stream = nullptr;
  bool early = false;  // as Pointers say
};
PlainLaunch prepare_cached_attention(const AttentionPlaces& places,
                                     const CachedAttentionLaunch& launch);  // MachineError

}  // namespace adjoint
