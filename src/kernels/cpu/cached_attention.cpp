// Attention of a few queries to kept keys, by the same blocks as attention itself: a query has the
// bits that it has there.
#include "ops/cached_attention.h"

#include "kernels/attention_places.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

int cached_workers(const KernelCall& k) {
  const CachedAttentionOperands operands(k.call);
  return attention_workers(k.threads, forward_bytes_per_thread(operands.all.shape),
                           k.workspace_cap);
}

Launch cached(const KernelCall& k, const Pointers& at) {
  const AttentionPlaces p = cached_attention_places(k, at);
  const int workers = cached_workers(k);
  return [=] { attention_forward(p, workers, at.workspace); };
}

}  // namespace

extern const Kernel cpu_cached_attention = {
    .op = "cached_attention",
    .prepare = cached,
    .workspace =
        [](const KernelCall& k) {
          const CachedAttentionOperands operands(k.call);
          return int64_t{cached_workers(k)} * forward_bytes_per_thread(operands.all.shape);
        },
};

}  // namespace adjoint
