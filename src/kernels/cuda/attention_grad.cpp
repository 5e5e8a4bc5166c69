// The gradient of attention on CUDA: where its operands are, and which way it goes.
#include "kernels/attention_places.h"
#include "kernels/cuda/attention.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  const size_t count = attention_operands(k.call);
  const AttentionOperands operands(k.call, count);
  std::vector<void*> in;
  for (const void* p : at.in) in.push_back(const_cast<void*>(p));
  const auto [q, key, v] = rows_of(operands, k.in_strides, in);
  const auto [dq, dk, dv] = rows_of(operands, k.out_strides, at.out);
  return prepare_attention_grad_cuda(
      operands.shape, q, key, v, rows_of(k.in_strides[count], in[count]), in[count + 1],
      rows_of(k.in_strides[count + 2], in[count + 2]), dq, dk, dv, at.workspace,
      attention_grad_way(operands.shape, k.deterministic, k.workspace_cap), k.deterministic,
      static_cast<CUstream_st*>(at.stream));
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
