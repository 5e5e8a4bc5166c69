#include "kernels/cuda/codegen/kernel_architecture.h"

#include <gtest/gtest.h>

#include "device/gpu.h"
#include "kernels/cuda/codegen/kernel_cache.h"

namespace adjoint {
namespace {

constexpr int kKnown[] = {75, 80, 86, 87, 89, 90, 100, 120};  // in any order

TEST(KernelArchitecture, IsTheGpusOwnWhereTheCompilerKnowsIt) {
  EXPECT_EQ(kernel_architecture(90, kKnown), "sm_90");
  EXPECT_EQ(kernel_architecture(80, kKnown), "sm_80");
  EXPECT_EQ(kernel_architecture(120, kKnown), "sm_120");
}

TEST(KernelArchitecture, IsPtxOfTheNewestThatTheGpuRuns) {
  EXPECT_EQ(kernel_architecture(130, kKnown), "compute_120");
  EXPECT_EQ(kernel_architecture(103, kKnown), "compute_100");
  constexpr int kOld[] = {90, 80};
  EXPECT_EQ(kernel_architecture(89, kOld), "compute_80") << "a newer one does not run there";
}

TEST(KernelArchitecture, IsNoneWhereAllAreNewer) {
  constexpr int kNew[] = {90, 100};
  EXPECT_EQ(kernel_architecture(80, kNew), "");
  EXPECT_EQ(kernel_architecture(90, {}), "");
}

TEST(KernelArchitecture, AnOldDriverIsNamed) {
  EXPECT_EQ(kernel_not_taken(12080, 13000, "compute_90",
                             "the provided PTX was compiled with an "
                             "unsupported toolchain."),
            "the NVIDIA driver, which speaks CUDA 12.8, does not take a kernel that NVRTC 13.0 "
            "compiled for compute_90 (the provided PTX was compiled with an unsupported "
            "toolchain.): update the driver to CUDA 13.0, or build adjoint with CUDA 12.8");
  EXPECT_EQ(kernel_not_taken(13010, 13000, "sm_90", "device kernel image is invalid"),
            "the NVIDIA driver, which speaks CUDA 13.1, does not take a kernel that NVRTC 13.0 "
            "compiled for sm_90 (device kernel image is invalid)");
}

TEST(KernelArchitecture, CompilesToPtxAsWell) {
  if (!has_cuda()) GTEST_SKIP() << "built without CUDA";
  const std::string text = "extern \"C\" __global__ void one(float* x) { *x = 1; }";
  const std::string ptx = compile_text(text, "compute_80");
  EXPECT_NE(ptx.find(".target sm_80"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.back(), '\0') << "as the driver wants it";
  EXPECT_EQ(compile_text(text, "sm_80").substr(1, 3), "ELF");
}

}  // namespace
}  // namespace adjoint
