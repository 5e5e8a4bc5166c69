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

}  // namespace
}  // namespace adjoint
