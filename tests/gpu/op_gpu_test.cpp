// Every op's CUDA kernels, held to the same contract as the CPU's. Skipped where there is no GPU.
#include "device/gpu.h"
#include "kernels/kernel_contract.h"

namespace adjoint {

void PrintTo(const OpDef* op, std::ostream* out) { *out << op->name; }

namespace {

class GpuOp : public testing::TestWithParam<const OpDef*> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
  const OpDef& op() const { return *GetParam(); }
};

TEST_P(GpuOp, KernelsAgreeWithTheReference) { expect_kernels_agree(op(), Target::kCuda); }

TEST_P(GpuOp, ReadsTheDtypesThatItTakes) {
  RecordProperty("calls", expect_reads_what_it_takes(op(), Target::kCuda));
}

TEST_P(GpuOp, PaddingChangesNothing) { expect_padding_changes_nothing(op(), Target::kCuda); }

TEST_P(GpuOp, GivesTheSameBitsEveryTime) {
  for (const Sample& sample : op().samples ? op().samples() : std::vector<Sample>{}) {
    const Scheme s = sample_scheme(op().name, sample, Dtype::kBF16);
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kBF16, 3);
    const auto once = run_scheme(s, x, false, Target::kCuda);
    EXPECT_EQ(once, run_scheme(s, x, false, Target::kCuda)) << print(s);
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, GpuOp, testing::ValuesIn(all_ops().begin(), all_ops().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace adjoint
