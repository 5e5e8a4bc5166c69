// float32 functions as branch-free polynomials, so that loops over them vectorize; vector_code.h
// has the same steps as instructions, and must give the same bits. Errors measured by
// tests/kernels/vector_math_test.cpp against libm in float64. Written by hand and not taken from
// SLEEF or libmvec, because the generated code has to repeat each step.
#pragma once
#include <algorithm>
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

// Near 0 an odd polynomial; else 1 - exp of one, which is near -x^2.
ADJOINT_INLINE float fast_erf(float x) {
  const float a = std::fabs(x), z = x * x;
  float p = -5.96761703e-4f;
  p = std::fma(p, z, 4.99119423e-3f);
  p = std::fma(p, z, -2.67681349e-2f);
  p = std::fma(p, z, 1.12819925e-1f);
  p = std::fma(p, z, -3.76125336e-1f);
  p = std::fma(p, z, 1.28379166e-1f);
  const float near_zero = std::fma(p, x, x);
  const float t = 4.0f < a ? 4.0f : a;  // 1 from here on
  float q = -1.72853470e-5f;
  q = std::fma(q, t, 3.83197126e-4f);
  q = std::fma(q, t, -3.88396438e-3f);
  q = std::fma(q, t, 2.42546219e-2f);
  q = std::fma(q, t, -1.06777877e-1f);
  q = std::fma(q, t, -6.34846687e-1f);
  q = std::fma(q, t, -1.28717512e-1f);
  const float far = std::copysign(1.0f - fast_exp(std::fma(q, t, -t)), x);
  return a < 0.927734375f ? near_zero : far;
}

// log(x) = n ln(2) + log(m), sqrt(1/2) <= m < sqrt(2).
ADJOINT_INLINE float fast_log(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  const bool tiny = x < 0x1p-126f;  // subnormal: scaled up by 23 bits, and down at the end
  const uint32_t u = std::bit_cast<uint32_t>(tiny ? x * 0x1p23f : x);
  const int32_t power = static_cast<int32_t>(u - kRootHalf) >> 23;
  const float n = static_cast<float>(power) - (tiny ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>(u - (static_cast<uint32_t>(power) << 23)) - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = std::fma(p, f, -1.1514610310e-1f);
  p = std::fma(p, f, 1.1676998740e-1f);
  p = std::fma(p, f, -1.2420140846e-1f);
  p = std::fma(p, f, 1.4249322787e-1f);
  p = std::fma(p, f, -1.6668057665e-1f);
  p = std::fma(p, f, 2.0000714765e-1f);
  p = std::fma(p, f, -2.4999993993e-1f);
  p = std::fma(p, f, 3.3333331174e-1f);
  float y = std::fma(n, -2.12194440e-4f, f * z * p);
  y = std::fma(-0.5f, z, y);
  y = std::fma(n, 0.693359375f, f + y);
  // Not below infinity: infinity and what is no number, as they are.
  y = x < INFINITY ? y : x;
  return x > 0.0f ? y : x == 0.0f ? -INFINITY : std::bit_cast<float>(0x7fc00000);
}

// The sine of x + quarter * pi / 2, for |x| up to kLargestAngle; beyond, the three parts of pi / 2
// no longer cancel what they should, and callers ask libm.
inline constexpr float kLargestAngle = 48000.0f;
ADJOINT_INLINE float fast_sine(float x, uint32_t quarter) {
  constexpr float kShift = 12582912.0f;
  const float shifted = std::fma(x, 0.636619747f, kShift);
  const float n = shifted - kShift;
  float r = std::fma(n, -1.57079601e+00f, x);
  r = std::fma(n, -3.13916473e-07f, r);
  r = std::fma(n, -5.39030253e-15f, r);
  const uint32_t q = std::bit_cast<uint32_t>(shifted) + quarter;
  const float z = r * r;
  float s = 2.86567956e-6f;
  s = std::fma(s, z, -1.98559923e-4f);
  s = std::fma(s, z, 8.33338592e-3f);
  s = std::fma(s, z, -1.66666672e-1f);
  s = std::fma(s, r * z, r);
  float c = 2.44677067e-5f;
  c = std::fma(c, z, -1.38877297e-3f);
  c = std::fma(c, z, 4.16666567e-2f);
  c = std::fma(c, z, -0.5f);
  c = std::fma(c, z, 1.0f);
  const float y = q & 1 ? c : s;
  return q & 2 ? -y : y;
}
ADJOINT_INLINE float fast_sin(float x) { return fast_sine(x, 0); }
ADJOINT_INLINE float fast_cos(float x) { return fast_sine(x, 1); }

// exp(x) where x is a score less its row's highest or its log-sum, so hardly above 0: one factor
// holds 2^n, and where there is no such factor the result is 0 or infinite. As fast_exp, in half
// the instructions.
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
  return p * std::bit_cast<float>(std::clamp(exponent, 0, 255) << 23);
}

}  // namespace adjoint
