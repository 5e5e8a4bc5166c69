// Room behind rows changes no gradient of models that read it in ways that no library model does.
#include "laws/padded_models.h"

namespace adjoint {
namespace {

class PaddedModels : public testing::TestWithParam<PaddedModel> {};

TEST_P(PaddedModels, KeepTheirLaws) { expect_laws(GetParam(), "pad_rows(least=16)", Target::kCpu); }

TEST_P(PaddedModels, LoseAsWithoutRoom) {
  expect_same_losses(GetParam(), "pad_rows(least=4)", "", Target::kCpu);
}

INSTANTIATE_TEST_SUITE_P(All, PaddedModels, testing::ValuesIn(kPaddedModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace adjoint
