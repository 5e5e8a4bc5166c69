// What the cross entropy and its gradient share. Both walk a row in blocks that stay in the
// first-level cache, so that memory is read once however long the row is; 16-bit blocks are widened
// to float32 first.
#pragma once
#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/half.h"
#include "device/parallel.h"
#include "ops/op_def.h"

namespace adjoint {

void check_cross_entropy_operands(const OpCall& call);  // Error

struct CrossEntropyRows {
  CrossEntropyRows(const OpCall& call, const Strides& logits_strides);
  int64_t count, classes, step, ignore;
};

template <class T>
inline constexpr Dtype kNarrow = std::is_same_v<T, BFloat16> ? Dtype::kBF16 : Dtype::kF16;

inline constexpr int64_t kClassBlock = 2048;  // elements: 8 KiB of floats

// exp(x) where x is a logit less the row's highest or its lse, so hardly above 0: one factor holds
// 2^n, and where there is no such factor the result is 0. As fast_exp, in half the instructions.
ADJOINT_INLINE float softmax_exp(float x) {
  constexpr float kRounder = 0x1.8p23f;  // added, it leaves the nearest integer in the last bits
  const float clamped = x < -100.0f ? -100.0f : x;
  const float shifted = clamped * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder) + 127;
  return p * std::bit_cast<float>(std::max(exponent, 0) << 23);
}

}  // namespace adjoint
