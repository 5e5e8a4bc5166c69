#include "kernels/attention_places.h"
#include "kernels/cuda/cached_attention.h"
#include "kernels/cuda/kernels.h"

namespace adjoint {

Launch cached_attention_cuda(const KernelCall& call, const Pointers& at) {
  return prepare_cached_attention(cached_attention_places(call, at),
                                  {.workspace = at.workspace,
                                   .stream = static_cast<CUstream_st*>(at.stream),
                                   .early = at.early});
}

}  // namespace adjoint
