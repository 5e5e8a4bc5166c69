// The numbers of an attention, which is all that most kernels ask of it.
#pragma once
#include <cstdint>

#include "scheme/type.h"

namespace adjoint {

struct AttentionShape {
  int64_t samples = 1, length = 1, kv_heads = 1, group = 1, size = 1;  // group: heads per kv head
  int64_t value_size = size;  // of v's heads and the result's
  bool causal = true;
  Dtype dtype = Dtype::kF32;

  // ---- options: what they say is absent where they are 0 ----
  double said_scale = 0;  // instead of 1 / sqrt(size)
  int64_t window = 0;     // a query sees keys at distances below this
  double cap = 0;         // scores become cap * tanh(score / cap)
  bool alibi = false;     // scores lose slope(head) * distance
  int64_t bias = 0;       // entries per head of the table that is added by distance
  bool sinks = false;     // a logit per head that has no value
  bool segments = false;  // a query sees keys of its own segment alone
  double dropout = 0;     // the share of weights that become 0

  double scale() const;
  // Press et al., "Train Short, Test Long", 2022. The slopes of n heads are 2^(-8/n), 2^(-16/n),
  // ... where n is a power of two; else those of the power below, then every other one of the power
  // above.
  double slope(int64_t head) const;
  // Scores are scaled and, where it is causal, masked: nothing else happens to them.
  bool is_plain() const;
  // How many pairs of a query and a key see each other, per head and sample. Segments do not count:
  // they are data.
  double pairs() const;
  Dtype wide() const { return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }
};

}  // namespace adjoint
