// Eight models, thirteen exact stacks, float32 and bf16, one thread and two: every pair of training
// runs has the same bits. ctest runs it for several sets of instructions.
#include "isa/exact_stacks.h"

namespace adjoint {
namespace {

class ExactSweep : public testing::TestWithParam<const char*> {};

TEST_P(ExactSweep, StacksGiveTheBitsOfThePlainStep) {
  const Compared compared = compare_stacks(exact_models(), exact_stacks(), GetParam());
  std::printf("of %d pairs %zu differ\n", compared.pairs, compared.different.size());
  EXPECT_EQ(compared.pairs, 2 * 8 * 13);
  EXPECT_EQ(compared.different, std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Bases, ExactSweep, testing::Values("", "bf16"), [](const auto& info) {
  return info.index == 0 ? std::string("float32") : std::string("bf16");
});

}  // namespace
}  // namespace adjoint
