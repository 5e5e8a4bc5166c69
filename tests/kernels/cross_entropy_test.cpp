// Rows of several blocks: the highest logit of a row may come in any of them.
#include <gtest/gtest.h>

#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/cross_entropy_calls.h"

namespace adjoint {
namespace {

constexpr int64_t kClasses = 2 * kClassBlock + 37;

Scheme loss_of(Dtype dtype, int64_t rows, int64_t classes,
               const Attrs& attrs = {{"ignore", int64_t{-1}}}) {
  const Type targets{Dtype::kI32, {{"n", rows}}};
  return sample_scheme(
      "cross_entropy",
      {.inputs = {{Dtype::kF32, {{"n", rows}, {"v", classes}}}, targets}, .attrs = attrs}, dtype);
}

Scheme gradient_of(Dtype dtype, int64_t rows, int64_t classes,
                   const Attrs& attrs = {{"ignore", int64_t{-1}}}) {
  const Type targets{Dtype::kI32, {{"n", rows}}};
  Scheme s = sample_scheme("cross_entropy_grad",
                           {.inputs = {{Dtype::kF32, {{"n", rows}, {"v", classes}}},
                                       targets,
                                       {Dtype::kF32, {{"n", rows}}},
                                       {Dtype::kF32, {}}},
                            .attrs = attrs},
                           dtype);
  for (const Value v : {2, 3}) s[s.inputs[v]].type.dtype = Dtype::kF32;
  return s;
}

// Row r has its highest logits in block r.
Numbers logits(Dtype dtype, int64_t rows) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Numbers x;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c) {
      x.push_back(round_element(normal(random) + (c / kClassBlock == r ? 9.0 : 0.0), dtype));
    }
  }
  return x;
}

TEST(CrossEntropy, TheHighestLogitMayBeInAnyBlock) {
  const Numbers targets{5, kClassBlock + 1, kClasses - 1};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    const Numbers x = logits(dtype, 3);
    const Scheme loss = loss_of(dtype, 3, kClasses);
    const auto got = run_scheme(loss, {x, targets}, false);
    const auto want = run_scheme(loss, {x, targets}, true);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_error(got[i], want[i]), 2e-7) << name(dtype) << " " << i;
    }
    const Scheme gradient = gradient_of(dtype, 3, kClasses);
    const std::vector<Numbers> operands{x, targets, want[2], {2}};
    const double bound = dtype == Dtype::kF32 ? 2e-6 : dtype == Dtype::kBF16 ? 0x1p-8 : 0x1p-10;
    const auto got_gradient = run_scheme(gradient, operands, false)[0];
    EXPECT_LE(relative_error(got_gradient, run_scheme(gradient, operands, true)[0]), bound)
        << name(dtype);
  }
}

// Each option by itself and all together, over several blocks of a row; the target's row is one
// that is all but certain, where p - 1 has few digits left.
TEST(CrossEntropy, OptionsAreTheReferencesInEveryBlock) {
  const Numbers targets{5, kClassBlock + 1, -1};
  for (const Attrs& options : {Attrs{{"smoothing", 0.1}}, Attrs{{"z", 0.01}}, Attrs{{"cap", 7.0}},
                               Attrs{{"smoothing", 0.1}, {"z", 0.01}, {"cap", 7.0}}}) {
    Attrs attrs = options;
    attrs["ignore"] = int64_t{-1};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
      Numbers x = logits(dtype, 3);
      x[5] = round_element(30, dtype);
      const Scheme loss = loss_of(dtype, 3, kClasses, attrs);
      const auto got = run_scheme(loss, {x, targets}, false);
      const auto want = run_scheme(loss, {x, targets}, true);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(relative_error(got[i], want[i]), 1e-6) << name(dtype) << " " << i;
      }
      Scheme gradient = gradient_of(dtype, 3, kClasses, attrs);
      if (dtype == Dtype::kF64) gradient[gradient.inputs[2]].type.dtype = Dtype::kF64;
      const std::vector<Numbers> operands{x, targets, want[2], {2}};
      const double bound = is_float(dtype) && size_of(dtype).count >= 4 ? 4e-6
                           : dtype == Dtype::kBF16                      ? 0x1p-8
                                                                        : 0x1p-10;
      const auto got_gradient = run_scheme(gradient, operands, false)[0];
      EXPECT_LE(relative_error(got_gradient, run_scheme(gradient, operands, true)[0]), bound)
          << name(dtype);
      EXPECT_EQ(got_gradient[2 * kClasses], 0) << "an ignored row has no gradient";
    }
  }
}

// exp(-inf) is 0, also where a whole block has nothing else.
TEST(CrossEntropy, ImpossibleClassesCountForNothing) {
  Numbers masked(kClasses, -INFINITY), rest;
  for (int64_t c = kClassBlock + 9; c < kClassBlock + 20; ++c) {
    masked[c] = 0.25 * static_cast<double>(c % 7);
    rest.push_back(masked[c]);
  }
  const double target = kClassBlock + 10;
  const auto got = run_scheme(loss_of(Dtype::kF32, 1, kClasses), {masked, {target}}, false);
  const auto want = run_scheme(loss_of(Dtype::kF32, 1, 11), {rest, {1}}, true);
  EXPECT_NEAR(got[2][0], want[2][0], 1e-6);
  EXPECT_NEAR(got[0][0], want[0][0], 1e-6);
  const auto gradient =
      run_scheme(gradient_of(Dtype::kF32, 1, kClasses), {masked, {target}, got[2], {1}}, false)[0];
  EXPECT_EQ(gradient[0], 0);
  EXPECT_EQ(gradient[kClasses - 1], 0);
}

TEST(CrossEntropy, ANumberThatIsNoneShows) {
  Numbers x(kClasses, 1);
  x[kClassBlock + 3] = NAN;
  EXPECT_TRUE(std::isnan(run_scheme(loss_of(Dtype::kF32, 1, kClasses), {x, {0}}, false)[0][0]));
}

TEST(CrossEntropy, WithItsGradientIsTheTwoCalls) { expect_one_call_is_two(Target::kCpu); }

TEST(SoftmaxExp, IsExpToAUnitInTheLastPlace) {
  for (float x = 2; x > -87.3f; x -= 0.00371f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_LE(std::abs(softmax_exp(x) - want), 0x1p-23 * want) << x;
  }
  EXPECT_EQ(softmax_exp(0.0f), 1.0f);
  EXPECT_EQ(softmax_exp(-88.5f), 0.0f);
  EXPECT_EQ(softmax_exp(-1e30f), 0.0f);
  EXPECT_EQ(softmax_exp(-INFINITY), 0.0f);
  EXPECT_TRUE(std::isnan(softmax_exp(NAN)));
}

}  // namespace
}  // namespace adjoint
