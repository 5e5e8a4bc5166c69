// The blocked attention of the CPU, forward and backward, one head of one sample at a time.
#pragma once
#include "base/bytes.h"
#include "kernels/attention_call.h"

namespace adjoint {

Bytes forward_bytes_per_thread(const AttentionShape& shape);
Bytes backward_bytes_per_thread(const AttentionShape& shape);
// What samples add to the gradients of the bias and the sinks, until all are there.
Bytes backward_bytes_shared(const AttentionShape& shape);

// How many threads work at once, each in a workspace of its own: as many as the cap leaves room
// for, and one at least.
int attention_workers(int threads, Bytes per_thread, Bytes cap);

// How many keys, in whole blocks, queries at neighbouring positions may see through a window.
int64_t keys_of_window(int64_t window, int64_t queries);

// lse[sample, kv_head, group, position] is the log of the sum of exp(scores), of the wide dtype.
void attention_forward(const AttentionPlaces& places, int workers, void* workspace);
void attention_backward(const AttentionGradPlaces& places, int workers, void* workspace);

}  // namespace adjoint
