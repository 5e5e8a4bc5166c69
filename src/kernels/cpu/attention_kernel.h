// The blocked attention of the CPU, forward and backward, one head of one sample at a time.
#pragma once
#include "kernels/rows.h"
#include "ops/attention_shape.h"

namespace adjoint {

Bytes forward_bytes_per_thread(const AttentionShape& shape);
Bytes backward_bytes_per_thread(const AttentionShape& shape);

// How many threads work at once, each in a workspace of its own: as many as the cap leaves room
// for, and one at least.
int attention_workers(int threads, Bytes per_thread, Bytes cap);

// lse[sample, kv_head, group, position] is the log of the sum of exp(scores), of the wide dtype.
void attention_forward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                       void* lse, void* workspace);
void attention_backward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                        const void* lse, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace);

}  // namespace adjoint
