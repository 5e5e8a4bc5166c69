// Targets that are looked up, too: a sample that is not there counts for nothing all the same.
#include <gtest/gtest.h>

#include "analysis/input_ranges.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

const ModelText kLookedUp{.file = "looked_up.scheme", .text = R"(axes hidden=16 context=8 vocab=20
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=wte) + embed(targets, vocab, name=seen)
  loss = cross_entropy(linear(x, vocab, name=readout), targets)
)"};

TEST(LookedUpTargets, AnUnevenBatchKeepsItsLaw) {
  for (const char* stack : {"data_parallel(2)", "data_parallel(3) | accumulate(2)"}) {
    const Report report = verify_model(kLookedUp, parse_stack(stack), {.seeds = 1, .full = true});
    EXPECT_TRUE(report.ok) << stack << ": " << report.reason;
  }
}

TEST(LookedUpTargets, PadsAreWhatTheLossIgnores) {
  const InputRanges ranges = input_ranges(BoundModel(kLookedUp, {}).forward());
  EXPECT_EQ(ranges.at("targets").padding, -1);
  EXPECT_FALSE(ranges.at("targets").ignored) << "a table has no such row";
  EXPECT_EQ(ranges.at("tokens").padding, 0);
}

}  // namespace
}  // namespace adjoint
