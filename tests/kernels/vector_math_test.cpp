// The float32 polynomials against libm in float64, over every exponent and both signs: exp to one
// unit in the last place, tanh, which divides by an exp, to two.
#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace adjoint {
namespace {

constexpr double kExpBound = 0x1p-23, kTanhBound = 0x1p-22;  // 1.2e-7, 2.4e-7
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

// Every 499th float of either sign: all exponents, and mantissas without a pattern.
template <class F>
void for_many_floats(const F& f) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 499) {
    f(std::bit_cast<float>(bits));
    f(std::bit_cast<float>(bits | 0x80000000));
  }
}

// Every 17th float of [low, high], both positive: where the functions bend.
template <class F>
void for_floats_between(float low, float high, const F& f) {
  for (uint32_t bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high);
       bits += 17) {
    f(std::bit_cast<float>(bits));
    f(-std::bit_cast<float>(bits));
  }
}

struct Worst {
  double error = 0;
  float at = 0;
  void see(float x, double got, double want) {
    const double e = std::abs(got - want) / std::abs(want);
    if (!(e <= error)) error = e, at = x;
  }
};

TEST(FastExp, RelativeErrorOverAllNormalResults) {
  Worst worst;
  const auto see = [&](float x) {
    const double want = std::exp(static_cast<double>(x));
    if (want < kSmallestNormal || want > std::numeric_limits<float>::max()) return;
    // The last few floats below the overflow may be infinity already.
    const double got = fast_exp(x);
    if (std::isinf(got) && x > 88.7227f) return;
    worst.see(x, got, want);
  };
  for_many_floats(see);
  for_floats_between(0.25f, 90.0f, see);
  EXPECT_LE(worst.error, kExpBound) << "at " << worst.at;
  EXPECT_GT(worst.error, 0) << "something was measured";
}

TEST(FastExp, TinyResultsAreZeroOrTiny) {
  const auto see = [](float x) {
    if (std::exp(static_cast<double>(x)) >= kSmallestNormal) return;
    const float got = fast_exp(x);
    ASSERT_GE(got, 0.0f) << x;
    ASSERT_LE(got, 1.0001 * kSmallestNormal) << x;
  };
  for_many_floats(see);
  for_floats_between(87.0f, 105.0f, see);
}

TEST(FastExp, Extremes) {
  EXPECT_EQ(fast_exp(-kInfinity), 0.0f);
  EXPECT_EQ(fast_exp(kInfinity), kInfinity);
  EXPECT_EQ(fast_exp(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(fast_exp(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f) << "what masks a score";
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
  EXPECT_TRUE(std::isnan(fast_exp(-kNan)));
  EXPECT_EQ(fast_exp(0.0f), 1.0f) << "a softmax's largest element";
  EXPECT_EQ(fast_exp(-0.0f), 1.0f);
  EXPECT_TRUE(std::isfinite(fast_exp(88.72f)));
  EXPECT_EQ(fast_exp(88.73f), kInfinity);
}

TEST(FastExp, NeverFallsBetweenNeighboursByMoreThanItsError) {
  float before = 0;
  for (float x = -88.0f; x < 88.0f; x += 1e-3f) {
    const float y = fast_exp(x);
    ASSERT_GE(y, before * (1 - kExpBound)) << x;
    before = y;
  }
}

TEST(FastTanh, RelativeErrorOverAllFloats) {
  Worst worst;
  const auto see = [&](float x) {
    if (x == 0) return;
    worst.see(x, fast_tanh(x), std::tanh(static_cast<double>(x)));
  };
  for_many_floats(see);
  for_floats_between(0.03f, 10.0f, see);  // both formulas, and their seam at 0.625
  EXPECT_LE(worst.error, kTanhBound) << "at " << worst.at;
  EXPECT_GT(worst.error, 0) << "something was measured";
}

TEST(FastTanh, Extremes) {
  EXPECT_EQ(fast_tanh(kInfinity), 1.0f);
  EXPECT_EQ(fast_tanh(-kInfinity), -1.0f);
  EXPECT_EQ(fast_tanh(std::numeric_limits<float>::max()), 1.0f);
  EXPECT_EQ(fast_tanh(std::numeric_limits<float>::lowest()), -1.0f);
  EXPECT_EQ(fast_tanh(0.0f), 0.0f);
  EXPECT_EQ(fast_tanh(-0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(fast_tanh(kNan)));
  for (const float tiny : {1e-45f, 1e-40f, 1e-30f}) {
    EXPECT_EQ(fast_tanh(tiny), tiny);
    EXPECT_EQ(fast_tanh(-tiny), -tiny);
  }
}

TEST(FastTanh, IsOddAndNeverBeyondOne) {
  for_many_floats([](float x) {
    ASSERT_EQ(fast_tanh(-x), -fast_tanh(x)) << x;
    ASSERT_LE(std::fabs(fast_tanh(x)), 1.0f) << x;
  });
}

// Two roundings beside the exponential's, while the result is a normal number.
TEST(FastSigmoid, RelativeErrorOverAllNormalResults) {
  Worst worst;
  const auto see = [&](float x) {
    const double want = 1 / (1 + std::exp(-static_cast<double>(x)));
    if (want >= kSmallestNormal) worst.see(x, fast_sigmoid(x), want);
  };
  for_many_floats(see);
  for_floats_between(0.03f, 90.0f, see);
  EXPECT_LE(worst.error, kTanhBound) << "at " << worst.at;
  EXPECT_GT(worst.error, 0) << "something was measured";
}

TEST(FastSigmoid, Extremes) {
  EXPECT_EQ(fast_sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(fast_sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(fast_sigmoid(-1e30f), 0.0f);
  EXPECT_EQ(fast_sigmoid(0.0f), 0.5f);
  EXPECT_EQ(fast_sigmoid(-0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(fast_sigmoid(kNan)));
}

TEST(FastErf, RelativeErrorOverAllFloats) {
  Worst worst;
  const auto see = [&](float x) {
    if (std::fabs(x) >= kSmallestNormal) {
      worst.see(x, fast_erf(x), std::erf(static_cast<double>(x)));
    }
  };
  for_many_floats(see);
  for_floats_between(0.03f, 5.0f, see);
  EXPECT_LE(worst.error, kTanhBound) << "at " << worst.at;
  EXPECT_GT(worst.error, 0) << "something was measured";
}

TEST(FastErf, Extremes) {
  EXPECT_EQ(fast_erf(kInfinity), 1.0f);
  EXPECT_EQ(fast_erf(-kInfinity), -1.0f);
  EXPECT_EQ(fast_erf(1e30f), 1.0f);
  EXPECT_EQ(fast_erf(0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(fast_erf(-0.0f)));
  EXPECT_TRUE(std::isnan(fast_erf(kNan)));
  for_many_floats([](float x) {
    ASSERT_EQ(fast_erf(-x), -fast_erf(x)) << x;
    ASSERT_LE(std::fabs(fast_erf(x)), 1.0f) << x;
  });
}

TEST(FastLog, RelativeErrorOverAllFloats) {
  Worst worst;
  const auto see = [&](float x) {
    if (x > 0 && x != 1) worst.see(x, fast_log(x), std::log(static_cast<double>(x)));
  };
  for_many_floats(see);  // subnormal numbers too
  for_floats_between(0.5f, 2.0f, see);
  EXPECT_LE(worst.error, kExpBound) << "at " << worst.at;
  EXPECT_GT(worst.error, 0) << "something was measured";
}

TEST(FastLog, Extremes) {
  EXPECT_EQ(fast_log(1.0f), 0.0f);
  EXPECT_EQ(fast_log(0.0f), -kInfinity);
  EXPECT_EQ(fast_log(-0.0f), -kInfinity);
  EXPECT_EQ(fast_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(fast_log(-1.0f)));
  EXPECT_TRUE(std::isnan(fast_log(-1e-40f)));
  EXPECT_TRUE(std::isnan(fast_log(-kInfinity)));
  EXPECT_TRUE(std::isnan(fast_log(kNan)));
}

// Held to the unit circle: where they cross 0 they are as near as the reduced angle is.
TEST(FastSine, ErrorUpToTheLargestAngle) {
  double sine = 0, cosine = 0;
  const auto see = [&](float x) {
    if (std::fabs(x) > kLargestAngle) return;
    const double s = std::sin(static_cast<double>(x)), c = std::cos(static_cast<double>(x));
    sine = std::max(sine, std::abs(fast_sin(x) - s));
    cosine = std::max(cosine, std::abs(fast_cos(x) - c));
  };
  for_many_floats(see);
  for_floats_between(0.5f, 400.0f, see);
  EXPECT_LE(sine, kExpBound);
  EXPECT_LE(cosine, kExpBound);
  EXPECT_GT(sine, 0) << "something was measured";
  EXPECT_EQ(fast_sin(0.0f), 0.0f);
  EXPECT_EQ(fast_cos(0.0f), 1.0f);
  EXPECT_EQ(fast_sin(1e-30f), 1e-30f);
}

}  // namespace
}  // namespace adjoint
