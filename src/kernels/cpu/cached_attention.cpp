// Attention of a few queries to kept keys, by the same blocks as attention itself: a query has the
// bits that it has there.
#include "ops/cached_attention.h"

#include "kernels/attention_places.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

// Keys of a ring are laid out by position again, as many as a step's queries see.
AttentionShape shape_in_order(const CachedAttentionOperands& operands) {
  AttentionShape shape = operands.all.shape;
  if (operands.ring) shape.length = keys_of_window(shape.window, operands.queries);
  return shape;
}

int cached_workers(const KernelCall& k) {
  const Bytes each = forward_bytes_per_thread(shape_in_order(CachedAttentionOperands(k.call)));
  return attention_workers(k.threads, each, k.workspace_cap);
}

Launch cached(const KernelCall& k, const Pointers& at) {
  AttentionPlaces p = cached_attention_places(k, at);
  p.shape = shape_in_order(CachedAttentionOperands(k.call));
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
          return int64_t{cached_workers(k)} * forward_bytes_per_thread(shape_in_order(operands));
        },
};

}  // namespace adjoint
