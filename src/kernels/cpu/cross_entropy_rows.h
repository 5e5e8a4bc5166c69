// What the cross entropy and its gradient share. Both walk a row in blocks that stay in the
// first-level cache, so that memory is read once however long the row is; 16-bit blocks are widened
// to float32 first.
#pragma once
#include <type_traits>

#include "base/half.h"
#include "device/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/kernel.h"
#include "ops/cross_entropy.h"

namespace adjoint {

struct CrossEntropyRows {
  CrossEntropyRows(const OpCall& call, const Strides& logits_strides);
  int64_t count, classes, step, ignore;
  CrossEntropyOptions options;

  // What every class gets of a target's one.
  double share() const { return options.smoothing / static_cast<double>(classes); }
};

ADJOINT_INLINE float soft_capped(float x, float cap) { return cap * fast_tanh(x * (1.0f / cap)); }
inline double soft_capped(double x, double cap) { return cap * std::tanh(x / cap); }
// y may be x.
void soft_cap(float* y, const float* x, int64_t n, float cap);
inline void soft_cap(double* y, const double* x, int64_t n, double cap) {
  for (int64_t i = 0; i < n; ++i) y[i] = soft_capped(x[i], cap);
}

template <class T>
inline constexpr Dtype kNarrow = std::is_same_v<T, BFloat16> ? Dtype::kBF16 : Dtype::kF16;

inline constexpr int64_t kClassBlock = 2048;  // elements: 8 KiB of floats

}  // namespace adjoint
