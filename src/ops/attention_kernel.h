// The blocked attention of the CPU, forward and backward, one head of one sample at a time.
#pragma once
#include <cstdint>

#include "scheme/type.h"

namespace adjoint {

// Where a projection's rows are: element (sample, position, head, i) is at
// data[sample * sample_step + position * row_step + head * size + i].
struct Rows {
  void* data = nullptr;
  int64_t sample_step = 0, row_step = 0;
};

struct AttentionShape {
  int64_t samples = 1, length = 1, kv_heads = 1, group = 1, size = 1;  // group: heads per kv head
  bool causal = true;
  Dtype dtype = Dtype::kF32;

  double scale() const;
  Dtype wide() const { return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }
  Bytes forward_bytes_per_thread() const;
  Bytes backward_bytes_per_thread() const;
};

// How many threads work at once, each in a workspace of its own: as many as the cap leaves room
// for, and one at least.
int attention_workers(int threads, Bytes per_thread, Bytes cap);

// lse[sample, kv_head, group, position] is the log of the sum of exp(scores), of the wide dtype.
void attention_forward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                       void* lse, void* workspace);
void attention_backward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                        const void* lse, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace);

}  // namespace adjoint
