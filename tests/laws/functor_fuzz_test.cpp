// A fixed few of the random functors; tests/long draws many.
#include "laws/functor_fuzz.h"

namespace adjoint {
namespace {

TEST(FunctorFuzz, ARandomFunctorIsRefusedOrRight) {
  const FuzzCounts counts = fuzz_functors(1, 40);
  // Neither kind may be rare, or the texts have become too wild or too tame to find anything.
  EXPECT_GE(counts.accepted, 10);
  EXPECT_GE(counts.refused, 5);
}

// A law that was broken once: weights that a block reads through a concat counted as outside it.
TEST(FunctorFuzz, ARegionKnowsTheWeightsOfJoinedProjections) {
  FunctorFuzz fuzz;
  const FuzzOutcome outcome =
      fuzz.run("llama-tiny",
               "functor mine:\n  law approximating\n"
               "  object outside chain, not parameter, not optimizer_state -> f16\n",
               " | checkpoint(block) | lora(rank=2, on=attention) | -join_projections");
  EXPECT_FALSE(outcome.refused) << outcome.message;
  for (const std::string& wrong : outcome.wrong) ADD_FAILURE() << wrong;
}

}  // namespace
}  // namespace adjoint
