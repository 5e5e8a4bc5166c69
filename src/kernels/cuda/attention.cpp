// Attention on CUDA: where its operands are, and which way it goes (kernels/cuda/attention.h).
#include "kernels/cuda/attention.h"

#include "base/error.h"
#include "kernels/attention_places.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const AttentionPlaces p = attention_places(k, at);
  if (!p.shape.is_plain() || p.shape.value_size != p.shape.size) {
    fail("attention: a GPU has no kernel for this call's options yet");
  }
  return prepare_attention_cuda(p.shape, p.q, p.k, p.v, p.out, p.lse, at.workspace,
                                attention_way(p.shape, k.workspace_cap),
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
