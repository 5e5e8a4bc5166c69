// Attention on CUDA: where its operands are, and which way it goes (kernels/cuda/attention.h).
#include "kernels/cuda/attention.h"

#include "kernels/attention_places.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const AttentionPlaces p = attention_places(k, at);
  return prepare_attention_cuda(p, at.workspace, attention_way(p.shape, k.workspace_cap),
                                static_cast<CUstream_st*>(at.stream));
}

}  // namespace

extern const Kernel cuda_attention = {
    .op = "attention",
    .prepare = cuda,
    .workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, k.call.inputs.size());
          return attention_way(operands.shape, k.workspace_cap).workspace;
        },
};

}  // namespace adjoint
