// The gradient of attention on the CPU, see attention_kernel.h.
#include "kernels/attention_places.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

int workers_of(const KernelCall& k) {
  const AttentionOperands operands(k.call, attention_operands(k.call));
  return attention_workers(k.threads, backward_bytes_per_thread(operands.shape), k.workspace_cap);
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const size_t count = attention_operands(k.call);
  const AttentionOperands operands(k.call, count);
  std::vector<void*> in;
  for (const void* p : at.in) in.push_back(const_cast<void*>(p));
  const auto [q, key, v] = rows_of(operands, k.in_strides, in);
  const auto [dq, dk, dv] = rows_of(operands, k.out_strides, at.out);
  const Rows out = rows_of(k.in_strides[count], in[count]);
  const Rows dout = rows_of(k.in_strides[count + 2], in[count + 2]);
  const void* lse = in[count + 1];
  const int workers = workers_of(k);
  return [=, shape = operands.shape] {
    attention_backward(shape, workers, q, key, v, out, lse, dout, dq, dk, dv, at.workspace);
  };
}

}  // namespace

extern const Kernel cpu_attention_grad = {
    .op = "attention_grad",
    .prepare = cpu,
    .workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, attention_operands(k.call));
          return int64_t{workers_of(k)} * backward_bytes_per_thread(operands.shape);
        },
};

}  // namespace adjoint
