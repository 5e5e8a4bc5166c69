// The loss and its gradient in one kernel give the bits of the two. Skipped where there is no GPU.
#include "device/gpu.h"
#include "kernels/cross_entropy_calls.h"

namespace adjoint {
namespace {

TEST(GpuCrossEntropy, WithItsGradientIsTheTwoCalls) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  expect_one_call_is_two(Target::kCuda);
}

}  // namespace
}  // namespace adjoint
