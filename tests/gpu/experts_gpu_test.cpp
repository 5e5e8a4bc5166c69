// Experts of more than one tile, by tensor cores and without. Skipped where there is no GPU.
#include "device/gpu.h"
#include "kernels/expert_calls.h"

namespace adjoint {
namespace {

TEST(GpuExperts, RowsAreMultipliedByTheirMatrices) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  experts_calls::expect_rows_are_multiplied(Target::kCuda);
}

TEST(GpuExperts, RowsAreSummedByTheirExperts) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  experts_calls::expect_rows_are_summed(Target::kCuda);
}

}  // namespace
}  // namespace adjoint
