// The gradient of attention on CUDA: where its operands are, and which way it goes.
#include "kernels/attention_places.h"
#include "kernels/cuda/attention.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const AttentionGradPlaces p = attention_grad_places(k, at);
  return prepare_attention_grad_cuda(p, at.workspace,
                                     attention_grad_way(p.shape, k.deterministic, k.workspace_cap),
                                     k.deterministic, static_cast<CUstream_st*>(at.stream));
}

}  // namespace

extern const Kernel cuda_attention_grad = {
    .op = "attention_grad",
    .prepare = cuda,
    .workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, attention_operands(k.call));
          return attention_grad_way(operands.shape, k.deterministic, k.workspace_cap).workspace;
        },
};

}  // namespace adjoint
