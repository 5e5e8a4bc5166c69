// Room behind rows changes no gradient on a GPU, where pad_rows is on by default. Skipped where
// there is no GPU.
#include "device/gpu.h"
#include "laws/functor_fuzz.h"
#include "laws/padded_models.h"

namespace adjoint {
namespace {

class GpuPaddedModels : public testing::TestWithParam<PaddedModel> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
};

TEST_P(GpuPaddedModels, KeepTheirLaws) {
  for (const char* stack : {"", "pad_rows(least=4)"}) {
    SCOPED_TRACE(stack);
    expect_laws(GetParam(), stack, Target::kCuda);
  }
}

TEST_P(GpuPaddedModels, LoseAsWithoutRoom) {
  expect_same_losses(GetParam(), "", "-pad_rows", Target::kCuda);
}

INSTANTIATE_TEST_SUITE_P(All, GpuPaddedModels, testing::ValuesIn(kPaddedModels),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GpuFunctorFuzz, ARandomFunctorIsRefusedOrRight) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const FuzzCounts counts = fuzz_functors(1, 20, Target::kCuda);
  EXPECT_GE(counts.accepted, 3);
}

}  // namespace
}  // namespace adjoint
