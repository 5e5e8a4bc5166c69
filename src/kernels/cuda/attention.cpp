// Attention on CUDA: where its operands are, and which way it goes (kernels/cuda/attention.h).
#include "kernels/cuda/attention.h"

#include "kernels/attention_places.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const AttentionOperands operands(k.call, k.call.inputs.size());
  std::vector<void*> in;
  for (const void* p : at.in) in.push_back(const_cast<void*>(p));
  const auto [q, key, v] = rows_of(operands, k.in_strides, in);
  return prepare_attention_cuda(
      operands.shape, q, key, v, rows_of(k.out_strides[0], at.out[0]), at.out[1], at.workspace,
      attention_way(operands.shape, k.workspace_cap), static_cast<CUstream_st*>(at.stream));
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
