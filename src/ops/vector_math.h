// float32 functions as branch-free polynomials, so that loops over them vectorize; vector_code.h
// has the same steps as instructions, and must give the same bits. Errors measured by
// tests/ops/vector_math_test.cpp against libm in float64.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "device/parallel.h"

namespace adjoint {

// exp(x) = 2^n * exp(r), |r| <= ln(2)/2; ln(2) in two parts so that r keeps its last bits. Above
// 88.7228 the result is infinite by itself, below -87.3365, where it leaves the normal numbers, 0.
ADJOINT_INLINE float fast_exp(float x) {
  constexpr float kLowest = -87.3365f, kHighest = 89.0f, kShift = 12582912.0f;
  const float c = kHighest < x ? kHighest : x;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the last bits.
  const float shifted = std::fma(c, 1.44269504f, kShift);
  const float n = shifted - kShift;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, c));
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // 2^n in two factors: n = 128 alone would overflow where the result does not.
  const uint32_t power = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(power) >> 1);
  const float y = p * std::bit_cast<float>((half + 127) << 23) *
                  std::bit_cast<float>((power - half + 127) << 23);
  return x < kLowest ? 0.0f : y;
}

// Where exp(-x) is infinite this is 0.
ADJOINT_INLINE float fast_sigmoid(float x) { return 1.0f / (fast_exp(-x) + 1.0f); }

ADJOINT_INLINE float fast_tanh(float x) {
  const float a = std::fabs(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = std::fma(p, z, 2.06390887954e-2f);
  p = std::fma(p, z, -5.37397155531e-2f);
  p = std::fma(p, z, 1.33314422036e-1f);
  p = std::fma(p, z, -3.33332819422e-1f);
  const float near_zero = std::fma(p, x * z, x);
  const float far = std::copysign(1.0f - 2.0f / (fast_exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near_zero : far;
}

}  // namespace adjoint
