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

// Contests count for the sheet that the GPU which ran them has, and for no other.
TEST(Machine, ContestsAreOfOneGpu) {
  TunedProducts table;
  const auto ran_on = [&](const char* gpu, int64_t memory) {
    table.remember(product_machine(gpu, {memory}, 130100), gpu,
                   {.algorithm = {}, .microseconds = 1});
  };
  ran_on("NVIDIA A100-SXM4-40GB", 42'298'834'944);
  ran_on("NVIDIA A100-SXM4-80GB", 85'097'971'712);
  ran_on("NVIDIA L40S", 47'000'000'000);  // which has no sheet
  const auto known = [&](const char* sheet) {
    return costs_on(find_device(sheet), 1, table).tuned.size();
  };
  EXPECT_EQ(known("a100"), 1u);
  EXPECT_TRUE(costs_on(find_device("a100-40"), 1, table).tuned.count("NVIDIA A100-SXM4-40GB"));
  EXPECT_EQ(known("a100-40"), 1u);
  EXPECT_EQ(known("h200"), 0u);
  EXPECT_EQ(known("l4"), 0u);
  EXPECT_EQ(known("cpu"), 0u);
}

}  // namespace
}  // namespace adjoint
