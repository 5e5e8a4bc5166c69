// Many random functors (laws/functor_fuzz.h). ADJOINT_FUZZ=first,count draws others.
#include "laws/functor_fuzz.h"

namespace adjoint {
namespace {

TEST(FunctorFuzz, ManyRandomFunctorsAreRefusedOrRight) {
  unsigned first = 1000, count = 400;
  if (const char* said = std::getenv("ADJOINT_FUZZ")) {
    ASSERT_EQ(std::sscanf(said, "%u,%u", &first, &count), 2) << "wanted first,count";
  }
  const FuzzCounts counts = fuzz_functors(first, count);
  std::printf("%d accepted and right, %d refused, %d wrong\n", counts.accepted, counts.refused,
              counts.wrong);
}

}  // namespace
}  // namespace adjoint
