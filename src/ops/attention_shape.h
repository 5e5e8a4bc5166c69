// The sizes of an attention, which is all that most kernels ask of it.
#pragma once
#include <cstdint>

#include "scheme/type.h"

namespace adjoint {

struct AttentionShape {
  int64_t samples = 1, length = 1, kv_heads = 1, group = 1, size = 1;  // group: heads per kv head
  bool causal = true;
  Dtype dtype = Dtype::kF32;

  double scale() const;
  Dtype wide() const { return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }
};

}  // namespace adjoint
