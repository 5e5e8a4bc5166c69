// float32 functions as branch-free polynomials, so that loops over them vectorize. Errors measured
// by tests/ops/vector_math_test.cpp against libm in float64.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "device/parallel.h"

namespace adjoint {

// exp(x) = 2^n * exp(r), |r| <= ln(2)/2; ln(2) in two parts so that r keeps its last bits.
ADJOINT_INLINE float fast_exp(float x) {
  constexpr float kLowest = -87.3365f, kHighest = 88.7228f;
  const float clamped = x < kLowest ? kLowest : x > kHighest ? kHighest : x;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
  const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t power = static_cast<int32_t>(n);
  // 2^n in two factors: n = 128 alone would overflow where the result does not.
  const int32_t half = power / 2;
  const float scale_a = std::bit_cast<float>((half + 127) << 23);
  const float scale_b = std::bit_cast<float>((power - half + 127) << 23);
  const float y = p * scale_a * scale_b;
  return x < kLowest ? 0.0f : x > kHighest ? INFINITY : y;
}

ADJOINT_INLINE float fast_tanh(float x) {
  const float a = std::fabs(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near_zero = x + x * z * p;
  const float far = std::copysign(1.0f - 2.0f / (fast_exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near_zero : far;
}

}  // namespace adjoint
