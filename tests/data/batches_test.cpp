#include "data/batches.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>

#include "base/error_text.h"

namespace adjoint {
namespace {

constexpr int64_t kBatch = 6, kContext = 5;

std::vector<int32_t> count_to(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

struct Filled {
  std::vector<int32_t> tokens, targets;
  bool operator==(const Filled&) const = default;
};

Filled fill(const Batches& batches, int64_t step) {
  Filled filled;
  filled.tokens.resize(batches.batch() * batches.context());
  filled.targets.resize(filled.tokens.size());
  batches.fill(step, filled.tokens.data(), filled.targets.data());
  return filled;
}

TEST(Batches, RowsAreCropsAndTargetsTheNextTokens) {
  const auto data = count_to(1000);  // a token is its own place
  const Batches batches(data, kBatch, kContext, 1, "train");
  for (int64_t step = 0; step < 100; ++step) {
    const auto [tokens, targets] = fill(batches, step);
    for (int64_t row = 0; row < kBatch; ++row) {
      const int32_t start = tokens[row * kContext];
      for (int64_t i = 0; i < kContext; ++i) {
        ASSERT_EQ(tokens[row * kContext + i], start + i);
        ASSERT_EQ(targets[row * kContext + i], start + i + 1);
      }
    }
  }
}

TEST(Batches, ArePureInSeedStepAndSplit) {
  const auto data = count_to(100'000);
  const Batches batches(data, kBatch, kContext, 1, "train");
  const Filled step_7 = fill(batches, 7);
  fill(batches, 3);
  EXPECT_EQ(fill(batches, 7), step_7);
  EXPECT_EQ(fill(Batches(data, kBatch, kContext, 1, "train"), 7), step_7);
  EXPECT_NE(fill(batches, 8), step_7);
  EXPECT_NE(fill(Batches(data, kBatch, kContext, 2, "train"), 7), step_7);
  EXPECT_NE(fill(Batches(data, kBatch, kContext, 1, "validation"), 7), step_7);
}

TEST(Batches, SamplesAreTheSameUnderAnySplitOfTheBatch) {
  const auto data = count_to(100'000);
  const Batches batches(data, kBatch, kContext, 1, "train");
  const Filled whole = fill(batches, 7);
  for (const int64_t part : {1, 2, 3}) {
    Filled parts{std::vector<int32_t>(kBatch * kContext), std::vector<int32_t>(kBatch * kContext)};
    for (int64_t first = 0; first < kBatch; first += part) {
      batches.fill_samples(7, first, part, parts.tokens.data() + first * kContext,
                           parts.targets.data() + first * kContext);
    }
    EXPECT_EQ(parts, whole) << part;
  }
  // A larger batch starts with the smaller one.
  Filled larger = fill(Batches(data, 2 * kBatch, kContext, 1, "train"), 7);
  larger.tokens.resize(kBatch * kContext);
  larger.targets.resize(kBatch * kContext);
  EXPECT_EQ(larger, whole);
}

TEST(Batches, EveryStartIsTakenAboutEquallyOften) {
  constexpr int kStarts = 8;
  const auto data = count_to(kContext + kStarts);
  const Batches batches(data, kBatch, kContext, 1, "train");
  std::array<int, kStarts> times{};
  constexpr int kSteps = 1000;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Filled filled = fill(batches, step);
    for (int64_t row = 0; row < kBatch; ++row) ++times.at(filled.tokens[row * kContext]);
  }
  const double expected = 1.0 * kBatch * kSteps / kStarts;
  double chi_squared = 0;
  for (const int count : times) chi_squared += (count - expected) * (count - expected) / expected;
  // Above this once in a thousand times, for 7 degrees of freedom; the draws are fixed.
  EXPECT_LT(chi_squared, 24.32);
}

TEST(Batches, TheSmallestDataHasOneCrop) {
  const auto data = count_to(kContext + 1);
  const Filled filled = fill(Batches(data, 1, kContext, 1, "train"), 0);
  EXPECT_EQ(filled.tokens, count_to(kContext));
  EXPECT_EQ(filled.targets.back(), kContext);
}

TEST(Batches, RefusesDataShorterThanTheContext) {
  const auto data = count_to(40);
  EXPECT_EQ(error_text([&] { Batches(data, 1, 64, 1, "train"); }),
            "the training part of the data has 40 tokens, but a context of 64 needs at least 65");
  EXPECT_EQ(error_text([&] { Batches(data, 1, 40, 1, "validation"); }),
            "the validation part of the data has 40 tokens, but a context of 40 needs at least 41");
  EXPECT_NE(error_text([&] { Batches({}, 1, 1, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { Batches(data, 1, INT64_MAX, 1, "train"); }), "");
}

TEST(Batches, RefusesSizesThatAreNoSizes) {
  const auto data = count_to(40);
  EXPECT_NE(error_text([&] { Batches(data, 0, 4, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { Batches(data, -1, 4, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { Batches(data, 1, 0, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { Batches(data, int64_t{1} << 62, 4, 1, "train"); }), "");
}

TEST(Prefetcher, GivesTheBatchesInOrder) {
  const auto data = count_to(1000);
  const Batches batches(data, kBatch, kContext, 1, "train");
  Prefetcher prefetcher(batches, 41);
  for (int64_t step = 41; step < 300; ++step) {
    const Batch& batch = prefetcher.next();
    const Filled expected = fill(batches, step);
    ASSERT_EQ(batch.step, step);
    ASSERT_EQ(batch.tokens, expected.tokens);
    ASSERT_EQ(batch.targets, expected.targets);
  }
}

TEST(Prefetcher, IsDestroyedCleanlyAtAnyTime) {
  const auto data = count_to(1000);
  const Batches batches(data, kBatch, kContext, 1, "train");
  for (int round = 0; round < 100; ++round) {
    Prefetcher prefetcher(batches, 0);
    for (int step = 0; step < round % 4; ++step) EXPECT_EQ(prefetcher.next().step, step);
  }
}

TEST(Prefetcher, OutlivesTheBatchesItWasMadeFrom) {
  const auto data = count_to(1000);
  const Filled expected = fill(Batches(data, kBatch, kContext, 1, "train"), 0);
  Prefetcher prefetcher(Batches(data, kBatch, kContext, 1, "train"), 0);
  EXPECT_EQ(prefetcher.next().tokens, expected.tokens);
}

}  // namespace
}  // namespace adjoint
