// The known answers are philox4x32-10's in Random123's kat_vectors.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace adjoint {
namespace {

TEST(Philox, GivesThePublishedBits) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The digits of pi. The first word of the key is its low half.
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, CountsBlocksInTheLowWordsAndStepsInTheHighOnes) {
  // The digits of pi again, as a block index and a step.
  const RandomStream stream{.key = 0x299f31d0a4093822, .step = 0x0370734413198a2e};
  const uint64_t index = 0x85a308d3243f6a88;
  EXPECT_EQ(stream.block(index), (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, ElementIsAWordOfItsBlock) {
  const RandomStream stream{};
  EXPECT_EQ(stream.bits(0), 0x6627e8d5u);
  EXPECT_EQ(stream.bits(3), 0x9b00dbd8u);
  EXPECT_EQ(stream.bits(6), stream.block(1)[2]);
}

// A sum of n independent draws strays from its mean by more than five standard errors once in two
// million times; the draws are fixed, so a test that passes does so always.
TEST(RandomStream, UniformHasItsMoments) {
  const RandomStream stream{random_key(1, "uniform"), 7};
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.uniform(i);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
}

TEST(RandomStream, NormalHasItsMoments) {
  const RandomStream stream{random_key(1, "normal"), 7};
  constexpr int kDraws = 100'000;
  double sum = 0, squares = 0, fourths = 0, neighbours = 0, last = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.normal(i);
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    neighbours += x * last;
    last = x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourths / kDraws, 3, 5 * std::sqrt(96.0 / kDraws));
  EXPECT_NEAR(neighbours / kDraws, 0, 5 * std::sqrt(1.0 / kDraws));
}

TEST(RandomKey, DiffersBySeedAndPath) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const char* path : {"", "a", "b", "ab", "data.train", "data.validation"}) {
      keys.insert(random_key(seed, path));
    }
  }
  EXPECT_EQ(keys.size(), 600u);
}

}  // namespace
}  // namespace adjoint
