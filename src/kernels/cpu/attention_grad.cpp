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
  const AttentionGradPlaces p = attention_grad_places(k, at);
  const int workers = workers_of(k);
  return [=] {
    attention_backward(p.shape, workers, p.q, p.k, p.v, p.out, p.lse, p.dout, p.dq, p.dk, p.dv,
                       at.workspace);
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
