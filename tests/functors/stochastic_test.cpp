// Trained parameters in bf16: the update rounds up or down at random, each as often as the number
// is near, so that steps too small for bf16 are not lost on average.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error_text.h"
#include "base/half.h"
#include "functors/functor_text.h"
#include "functors/phases.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

constexpr int kCount = 4096;

// w - rate * g, with w held in bf16.
Scheme update() {
  const Scheme said = parse_scheme(R"(scheme:
  parameter %0 w: f32[n=4096] precision="bf16/stochastic"
  input %1 g: f32[n=4096]
  control %2 rate: f32[]
  control %3 factor: f32[]
  control %4 ok: f32[]
  %5 w: f32[n=4096] parameter precision="bf16/stochastic" = sgd(%0, %1, %2, %3, %4) {decay=0.0} @w update
  carry %0 -> %5
  return %5
)");
  Scheme scheme = realize_precision(said);
  verify(scheme);
  return scheme;
}

Numbers updated(const Scheme& scheme, const Numbers& w, const Numbers& g, double rate, int64_t step,
                bool reference, double ok = 1) {
  const Numbers counter = {7, static_cast<double>(step), 0};
  return run_scheme(scheme, {w, g, {rate}, {1}, {ok}, counter}, reference)[0];
}

double bf16(double x) { return BFloat16(static_cast<float>(x)); }
// The bf16 values on both sides of x.
std::pair<double, double> around(double x) {
  const double nearest = bf16(x);
  if (nearest == x) return {x, x};
  const auto neighbour = [&](bool up) {
    uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(nearest)) >> 16;
    bits += up == (nearest > 0) ? 1 : -1;
    return static_cast<double>(std::bit_cast<float>(bits << 16));
  };
  return nearest < x ? std::pair{nearest, neighbour(true)} : std::pair{neighbour(false), nearest};
}

TEST(Stochastic, HoldsAndCarriesBf16) {
  const Scheme scheme = update();
  EXPECT_EQ(scheme[scheme.carries[0].in].type.dtype, Dtype::kBF16);
  EXPECT_EQ(scheme[scheme.carries[0].out].type.dtype, Dtype::kBF16);
  EXPECT_EQ(scheme.morphisms.size(), 1u) << "no cast: the update itself reads and writes bf16";
  EXPECT_TRUE(scheme.find({std::string(kRandomCounter)}));
}

// At all magnitudes, around powers of two and for both signs: one of the two neighbours, and on
// average the number itself.
TEST(Stochastic, IsOneOfTheNeighboursAndRightOnAverage) {
  const Scheme scheme = update();
  Numbers w(kCount), g(kCount);
  for (int i = 0; i < kCount; ++i) {
    const double magnitude = std::ldexp(1, i % 41 - 20);
    // A value of bf16's, from 1 to 2 times the magnitude, and less than its spacing taken away.
    w[i] = bf16((i % 2 ? -1 : 1) * magnitude * (1 + (i / 64 % 64) / 64.0));
    g[i] = (i % 3 ? 1 : -1) * magnitude / 128 * ((i % 29) + 1) / 31.0;
  }
  constexpr int kSteps = 400;
  Numbers sum(kCount);
  for (int step = 0; step < kSteps; ++step) {
    const Numbers got = updated(scheme, w, g, 1, step, false);
    for (int i = 0; i < kCount; ++i) {
      const auto [low, high] = around(static_cast<float>(w[i]) - static_cast<float>(g[i]));
      ASSERT_TRUE(got[i] == low || got[i] == high) << w[i] << " - " << g[i] << ": " << got[i];
      sum[i] += got[i];
    }
  }
  double worst = 0;  // in standard deviations of the mean
  for (int i = 0; i < kCount; ++i) {
    const double x = static_cast<float>(w[i]) - static_cast<float>(g[i]);
    const auto [low, high] = around(x);
    const double up = high > low ? (x - low) / (high - low) : 0;
    const double deviation = (high - low) * std::sqrt(up * (1 - up) / kSteps);
    const double off = std::abs(sum[i] / kSteps - x);
    if (deviation == 0) {
      EXPECT_EQ(off, 0);
    } else {
      worst = std::max(worst, off / deviation);
    }
  }
  EXPECT_LT(worst, 5.5) << "of 4096 means";
}

// Reference, interpreter and machine code draw the same numbers.
TEST(Stochastic, EveryReadingDrawsTheSame) {
  const Scheme scheme = update();
  Numbers w(kCount), g(kCount);
  for (int i = 0; i < kCount; ++i) {
    w[i] = bf16(std::sin(i) * std::exp(std::cos(3 * i)));
    g[i] = std::cos(7 * i);
  }
  const Numbers run = updated(scheme, w, g, 0x1p-10, 3, false);
  EXPECT_EQ(run, updated(scheme, w, g, 0x1p-10, 3, true));
  EXPECT_NE(run, updated(scheme, w, g, 0x1p-10, 4, false)) << "another step, other numbers";
}

TEST(Stochastic, ZerosAndStepsThatAreNotTakenStay) {
  const Scheme scheme = update();
  Numbers w(kCount), g(kCount, 1.0);
  for (int i = 0; i < kCount; ++i) w[i] = bf16(i - 2048);
  EXPECT_EQ(updated(scheme, w, g, 0.01, 0, false, 0), w) << "ok is 0";
  EXPECT_EQ(updated(scheme, w, Numbers(kCount), 0.01, 0, false), w) << "no gradient";
  EXPECT_EQ(updated(scheme, Numbers(kCount), Numbers(kCount), 0.01, 0, false), Numbers(kCount));
}

// What bf16's own rounding loses: 1000 steps of a hundredth of the spacing.
TEST(Stochastic, SmallStepsAddUp) {
  const Scheme scheme = update();
  Numbers w(kCount, 1.0);
  const Numbers g(kCount, -1.0);
  for (int step = 0; step < 1000; ++step) {
    w = updated(scheme, w, g, 0x1p-7 / 100, step, false);
  }
  double mean = 0;
  for (const double x : w) mean += x / kCount;
  EXPECT_NEAR(mean, 1 + 10 * 0x1p-7, 0x1p-7 / 10);
}

TEST(Stochastic, OfAWholeModel) {
  const Scheme forward =
      elaborate_preset("llama-tiny", {{"layers", 2}, {"context", 4}, {"batch", 2}});
  const Scheme step = build_step(forward, parse_stack("bf16_weights | bf16"), {}).scheme;
  for (const Object& o : step.objects) {
    if (o.role == Role::kParameter && o.source.facet.empty()) {
      EXPECT_EQ(o.type.dtype, Dtype::kBF16) << to_string(o.source);
    }
    if (o.role == Role::kState) {
      EXPECT_EQ(o.type.dtype, Dtype::kF32) << to_string(o.source);
    }
  }
  EXPECT_EQ(call_at(step, "block[0].o").inputs[1], *step.find({"block[0].o.weight"}))
      << "products read it as it is";
  // The evaluation holds the same state.
  const Scheme evaluated = evaluation_scheme(forward, parse_stack("bf16_weights"), {});
  EXPECT_EQ(object_at(evaluated, "block[0].o.weight").type.dtype, Dtype::kBF16);
  // Only what is trained: beside adapters the base stays as it is.
  const Scheme tuned = build_step(forward, parse_stack("bf16_weights | lora(2)"), {}).scheme;
  EXPECT_EQ(object_at(tuned, "block[0].o.weight").type.dtype, Dtype::kF32);
  EXPECT_EQ(object_at(tuned, "block[0].o.lora_a.weight").type.dtype, Dtype::kBF16);
}

// A rule may mean some of them, and those are bf16 before and after the step.
TEST(Stochastic, SomeOfTheParameters) {
  const Functor f = parse_functor(
      "functor f:\n  law approximating\n  object trained, matrix -> bf16 stochastic\n",
      "f.functor");
  Stack stack = parse_stack("");
  stack.functors.insert(stack.functors.begin(), {f, Arguments("f", {}, Term{}), false});
  const Scheme step = build_step(elaborate_preset("llama-tiny"), stack, {}).scheme;
  for (const Carry& c : step.carries) EXPECT_EQ(step[c.in].type.dtype, step[c.out].type.dtype);
  EXPECT_EQ(object_at(step, "block[0].o.weight").type.dtype, Dtype::kBF16);
  EXPECT_EQ(object_at(step, "block[0].rms_norm#1.weight").type.dtype, Dtype::kF32);
}

TEST(Stochastic, OnlyTrainedParameters) {
  EXPECT_EQ(error_text([&] {
              realize_precision(
                  parse_scheme("scheme:\n  parameter %0 w: f32[n=2] frozen "
                               "precision=\"bf16/stochastic\"\n  return %0\n"));
            }),
            "precision: 'w' cannot be bf16/stochastic: only a trained parameter is rounded at "
            "random");
  const Functor f = parse_functor(
      "functor f:\n  law approximating\n  object activation -> bf16 stochastic\n", "f.functor");
  Stack stack = parse_stack("");
  stack.functors.insert(stack.functors.begin(), {f, Arguments("f", {}, Term{}), false});
  EXPECT_EQ(
      error_text([&] { build_step(elaborate_preset("llama-tiny"), stack, {}); }),
      "f.functor:3:3: only a trained parameter is rounded at random, and 'wte' is activation");
}

}  // namespace
}  // namespace adjoint
