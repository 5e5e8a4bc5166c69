#include "run/machine.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

TEST(Machine, SheetsAreFoundByNameAndMemory) {
  constexpr int64_t kGiB = 1 << 30;
  const auto sheet = [](const char* gpu, double gib) {
    return sheet_for_gpu(gpu, {static_cast<int64_t>(gib * kGiB)});
  };
  EXPECT_EQ(sheet("NVIDIA H200", 139.8), "h200");
  EXPECT_EQ(sheet("NVIDIA H100 80GB HBM3", 79.1), "h100");
  EXPECT_EQ(sheet("NVIDIA A100-SXM4-80GB", 79.2), "a100");
  EXPECT_EQ(sheet("NVIDIA A100 80GB PCIe", 79.2), "a100");
  EXPECT_EQ(sheet("NVIDIA A100-SXM4-40GB", 39.4), "a100-40");
  EXPECT_EQ(sheet("NVIDIA A100-PCIE-40GB", 39.4), "a100-40");
  EXPECT_EQ(sheet("A100-SXM4-40GB", 39.6), "a100-40");
  EXPECT_EQ(sheet("NVIDIA GeForce RTX 4090", 23.6), "rtx4090");
  EXPECT_EQ(sheet("NVIDIA L4", 22), "l4");
}

TEST(Machine, AGpuWithoutASheetTakesTheH200s) {
  for (const char* gpu : {"NVIDIA L40S", "NVIDIA A10", "NVIDIA H20", "NVIDIA B200", ""}) {
    EXPECT_EQ(sheet_for_gpu(gpu, {40'000'000'000}), "h200") << gpu;
  }
}

}  // namespace
}  // namespace adjoint
