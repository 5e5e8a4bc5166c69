// The gradient of attention on the CPU, see attention_kernel.h.
#include "kernels/attention_places.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/kernel.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

int workers_of(const KernelCall& k) {
  const AttentionOperands operands(k.call, attention_operands(k.call));
  const AttentionShape& s = operands.shape;
  const Bytes shared = backward_bytes_shared(s);
  const Bytes left = k.workspace_cap > shared ? k.workspace_cap - shared : Bytes{0};
  return attention_workers(k.threads, backward_bytes_per_thread(s), left);
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const AttentionGradPlaces p = attention_grad_places(k, at);
  const int workers = workers_of(k);
  return [=] { attention_backward(p, workers, at.workspace); };
}

}  // namespace

extern const Kernel cpu_attention_grad = {
    .op = "attention_grad",
    .prepare = cpu,
    .workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, attention_operands(k.call));
          return int64_t{workers_of(k)} * backward_bytes_per_thread(operands.shape) +
                 backward_bytes_shared(operands.shape);
        },
};

}  // namespace adjoint
