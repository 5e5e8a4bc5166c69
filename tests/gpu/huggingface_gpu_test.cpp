// Folders of Hugging Face's format on the GPU: weights get there, and logits are transformers'.
#include "device/gpu.h"
#include "train/huggingface_folders.h"

namespace adjoint {
namespace {

class HuggingFaceGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
};

TEST_P(HuggingFaceGpu, LogitsAgree) {
  const fs::path folder = family_folder(GetParam());
  const ReferenceFile reference(folder);
  const Numbers logits =
      logits_for(folder, reference.ids("tokens"), reference.batch(), Target::kCuda);
  EXPECT_LE(relative_error(logits, reference.doubles("logits")), 1e-5);
}

TEST_P(HuggingFaceGpu, GeneratesTheTokensOfTransformers) {
  EXPECT_EQ(expect_greedy_tokens(family_folder(GetParam()), Target::kCuda), 24u);
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceGpu, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace adjoint
