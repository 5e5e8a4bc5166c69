// The gradient of attention on CUDA: where its operands are, and which way it goes.
#include "base/error.h"
#include "kernels/attention_places.h"
#include "kernels/cuda/attention.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const AttentionGradPlaces p = attention_grad_places(k, at);
  if (!p.shape.is_plain() || p.shape.value_size != p.shape.size) {
    fail("attention: a GPU has no kernel for this call's options yet");
  }
  return prepare_attention_grad_cuda(p.shape, p.q, p.k, p.v, p.out, p.lse, p.dout, p.dq, p.dk, p.dv,
                                     at.workspace,
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
