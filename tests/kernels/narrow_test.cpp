// What 16-bit kernels must not lose, beyond the bounds that every op is held to.
#include <gtest/gtest.h>

#include "kernels/harness.h"

namespace adjoint {
namespace {

// p - 1 of a target that is almost certain: p alone rounds to 1.
TEST(Narrow, AConfidentTargetKeepsItsGradient) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16}) {
    const Sample sample{.inputs = {{Dtype::kF32, {{"n", 1}, {"v", 2}}},
                                   {Dtype::kI32, {{"n", 1}}},
                                   {Dtype::kF32, {{"n", 1}}},
                                   {Dtype::kF32, {}}},
                        .attrs = {{"ignore", int64_t{-1}}}};
    Scheme s = sample_scheme("cross_entropy_grad", sample, dtype);
    for (const Value v : {2, 3}) s[s.inputs[v]].type.dtype = Dtype::kF32;
    const double rest = std::exp(-8.0), lse = 8 + std::log1p(rest);
    const auto got = run_scheme(s, {{8, 0}, {0}, {lse}, {2}}, false);
    const double want = -2 * rest / (1 + rest);
    EXPECT_NEAR(got[0][0], want, 0x1p-8 * -want) << name(dtype);
    EXPECT_NEAR(got[0][1], -want, 0x1p-8 * -want) << name(dtype);
  }
}

// A scale that float16 cannot hold itself, on a gradient that it can.
TEST(Narrow, ALargeScaleOverflowsNothingThatFits) {
  const Sample sample{.inputs = {{Dtype::kF32, {{"n", 1}, {"v", 2}}},
                                 {Dtype::kI32, {{"n", 1}}},
                                 {Dtype::kF32, {{"n", 1}}},
                                 {Dtype::kF32, {}}},
                      .attrs = {{"ignore", int64_t{-1}}}};
  Scheme s = sample_scheme("cross_entropy_grad", sample, Dtype::kF16);
  for (const Value v : {2, 3}) s[s.inputs[v]].type.dtype = Dtype::kF32;
  const double rest = std::exp(-8.0), lse = 8 + std::log1p(rest), scale = 0x1p20;
  const auto got = run_scheme(s, {{8, 0}, {0}, {lse}, {scale}}, false);
  const double want = -scale * rest / (1 + rest);
  EXPECT_NEAR(got[0][0], want, 2e-3 * -want);
}

}  // namespace
}  // namespace adjoint
