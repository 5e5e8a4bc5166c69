// Exact stacks give the bits of the plain one, on models in which results lie inside others: a few
// of the pairs that tests/long compares, under the instructions that this process may use.
#include "isa/exact_stacks.h"

namespace adjoint {
namespace {

std::vector<SmallModel> some_models() {
  std::vector<SmallModel> models;
  for (SmallModel& model : exact_models()) {
    if (model.name != "gpt2" && model.name != "nested") models.push_back(std::move(model));
  }
  return models;
}

TEST(ExactStacks, GiveTheBitsOfThePlainStep) {
  const Compared compared =
      compare_stacks(some_models(), {"checkpoint(block)", "reside()", "offload(activations)"}, "");
  EXPECT_EQ(compared.pairs, 2 * 6 * 3);
  EXPECT_EQ(compared.different, std::vector<std::string>{});
}

TEST(ExactStacks, GiveTheBitsOfThePlainStepInBf16) {
  const Compared compared = compare_stacks(some_models(), {"checkpoint(block)"}, "bf16");
  EXPECT_EQ(compared.pairs, 2 * 6 * 1);
  EXPECT_EQ(compared.different, std::vector<std::string>{});
}

}  // namespace
}  // namespace adjoint
