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
  EXPECT_EQ(fuzz_functors(5055, 1).accepted, 1);
}

}  // namespace
}  // namespace adjoint
