#include "device/gpu_refusals.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/gpu.h"

namespace adjoint {
namespace {

TEST(GpuRefusals, SayWhatIsMissing) {
  GpuFound found{.runtime = 13000};
  EXPECT_EQ(why_no_gpu(found), "there is no NVIDIA driver on this machine: say --device cpu");
  found.driver = 12080;
  EXPECT_EQ(why_no_gpu(found),
            "the NVIDIA driver is too old: it speaks CUDA 12.8, this adjoint was built for 13.0; "
            "update the driver, or say --device cpu");
  found.driver = 13000;
  EXPECT_EQ(why_no_gpu(found),
            "no GPU can be used on this machine (there is none): say --device cpu");
  found.trouble = "no CUDA-capable device is detected";
  EXPECT_EQ(why_no_gpu(found),
            "no GPU can be used on this machine (no CUDA-capable device is detected): say --device "
            "cpu");
  found = {
      .driver = 13000, .runtime = 13000, .count = 1, .name = "Tesla T4", .major = 7, .minor = 5};
  EXPECT_EQ(why_no_gpu(found),
            "Tesla T4 has compute capability 7.5; Adjoint's kernels and bf16 want 8.0 or newer: "
            "say --device cpu");
}

TEST(GpuRefusals, AcceptWhatWorks) {
  GpuFound found{.driver = 13000, .runtime = 13000, .count = 1, .name = "NVIDIA H200", .major = 9};
  EXPECT_EQ(why_no_gpu(found), "");
  found.major = 12;
  EXPECT_EQ(why_no_gpu(found), "");
  found.runtime = 13020;  // of one major version all drivers do
  EXPECT_EQ(why_no_gpu(found), "");
}

TEST(GpuRefusals, SayTheBytesAndTheFlag) {
  EXPECT_EQ(too_little_gpu_memory({30LL << 30}, {20LL << 30}),
            "this wants 30.0 GiB (32212254720 bytes) of GPU memory, where 20.0 GiB (21474836480 "
            "bytes) are free: take a smaller --batch, or let train or profile choose a stack that "
            "fits with --fit 19968MiB");
  EXPECT_NE(too_little_gpu_memory({30LL << 30}, {0}).find("--fit 1MiB"), std::string::npos);
}

// Whatever is missing here is the user's to change, and no failure of the machine.
TEST(GpuRefusals, AreErrorsOfTheUsers) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(open_gpu(), Error);
  EXPECT_THROW(GpuStream(), Error);
}

}  // namespace
}  // namespace adjoint
