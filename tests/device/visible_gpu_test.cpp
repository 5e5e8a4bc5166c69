#include "device/visible_gpu.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace adjoint {
namespace {

TEST(VisibleGpu, EveryProcessTakesItsOwn) {
  EXPECT_EQ(visible_gpu(std::nullopt, 0, 1), std::nullopt) << "one process has them all";
  EXPECT_EQ(visible_gpu("2,3", 0, 1), std::nullopt);
  EXPECT_EQ(visible_gpu(std::nullopt, 3, 4), "3");
  EXPECT_EQ(visible_gpu("4,5,6,7", 1, 4), "5");
  EXPECT_EQ(visible_gpu("GPU-aa,GPU-bb", 1, 2), "GPU-bb");
  EXPECT_EQ(visible_gpu("5", 1, 4), std::nullopt) << "the scheduler has chosen";
}

TEST(VisibleGpu, TooFewAreRefused) {
  EXPECT_EQ(error_text([] { (void)visible_gpu("0,1", 1, 4); }),
            "CUDA_VISIBLE_DEVICES names 2 GPUs, and 4 ranks run on this machine; each wants one of "
            "its own");
}

}  // namespace
}  // namespace adjoint
