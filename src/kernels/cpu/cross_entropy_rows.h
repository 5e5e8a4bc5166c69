// What the cross entropy and its gradient share. Both walk a row in blocks that stay in the
// first-level cache, so that memory is read once however long the row is; 16-bit blocks are widened
// to float32 first.
#pragma once
#include <type_traits>

#include "base/half.h"
#include "device/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/kernel.h"

namespace adjoint {

struct CrossEntropyRows {
  CrossEntropyRows(const OpCall& call, const Strides& logits_strides);
  int64_t count, classes, step, ignore;
};

template <class T>
inline constexpr Dtype kNarrow = std::is_same_v<T, BFloat16> ? Dtype::kBF16 : Dtype::kF16;

inline constexpr int64_t kClassBlock = 2048;  // elements: 8 KiB of floats

}  // namespace adjoint
