// Attention on the CPU: as many threads as the cap on workspaces leaves room for, see
// attention_kernel.h.
#include "ops/attention.h"

#include "kernels/attention_places.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

int workers_of(const KernelCall& k) {
  const AttentionOperands operands(k.call, k.call.inputs.size());
  return attention_workers(k.threads, forward_bytes_per_thread(operands.shape), k.workspace_cap);
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const AttentionPlaces p = attention_places(k, at);
  const int workers = workers_of(k);
  return [=] { attention_forward(p, workers, at.workspace); };
}

}  // namespace

extern const Kernel cpu_attention = {
    .op = "attention",
    .prepare = cpu,
    .workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, k.call.inputs.size());
          return int64_t{workers_of(k)} * forward_bytes_per_thread(operands.shape);
        },
};

}  // namespace adjoint
