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

// Tokens and the token after each, as a text has them.
Batches batches_of(const std::vector<int32_t>& data, int64_t batch, int64_t context, uint64_t seed,
                   std::string_view split) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  return {{{.name = "tokens", .data = bytes}, {.name = "targets", .data = bytes, .ahead = 1}},
          static_cast<int64_t>(data.size()),
          batch,
          context,
          seed,
          split};
}

struct Filled {
  std::vector<int32_t> tokens, targets;
  bool operator==(const Filled&) const = default;
};

Filled fill(const Batches& batches, int64_t step) {
  Filled filled;
  filled.tokens.resize(batches.batch() * batches.context());
  filled.targets.resize(filled.tokens.size());
  void* const to[] = {filled.tokens.data(), filled.targets.data()};
  batches.fill(step, to);
  return filled;
}

// Some rows of every field, one behind the other.
Batches rows_of(const Batches& batches, int64_t first, int64_t num) {
  std::vector<DrawnPiece> pieces;
  for (const Field& field : batches.fields()) {
    const int64_t row = batches.context() * field.width;
    pieces.push_back({.size = num * row, .runs = {{first * row, 0, num * row}}});
  }
  return batches.shared(pieces);
}

std::vector<int32_t> ids_of(const Batch& batch, size_t field) {
  const auto* ids = reinterpret_cast<const int32_t*>(batch.fields[field].data());
  return {ids, ids + batch.fields[field].size() / sizeof(int32_t)};
}

TEST(Batches, RowsAreCropsAndTargetsTheNextTokens) {
  const auto data = count_to(1000);  // a token is its own place
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
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
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
  const Filled step_7 = fill(batches, 7);
  fill(batches, 3);
  EXPECT_EQ(fill(batches, 7), step_7);
  EXPECT_EQ(fill(batches_of(data, kBatch, kContext, 1, "train"), 7), step_7);
  EXPECT_NE(fill(batches, 8), step_7);
  EXPECT_NE(fill(batches_of(data, kBatch, kContext, 2, "train"), 7), step_7);
  EXPECT_NE(fill(batches_of(data, kBatch, kContext, 1, "validation"), 7), step_7);
}

TEST(Batches, SamplesAreTheSameUnderAnySplitOfTheBatch) {
  const auto data = count_to(100'000);
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
  const Filled whole = fill(batches, 7);
  for (const int64_t part : {1, 2, 3}) {
    Filled parts{std::vector<int32_t>(kBatch * kContext), std::vector<int32_t>(kBatch * kContext)};
    for (int64_t first = 0; first < kBatch; first += part) {
      void* const to[] = {parts.tokens.data() + first * kContext,
                          parts.targets.data() + first * kContext};
      rows_of(batches, first, part).fill(7, to);
    }
    EXPECT_EQ(parts, whole) << part;
  }
  // A larger batch starts with the smaller one.
  Filled larger = fill(batches_of(data, 2 * kBatch, kContext, 1, "train"), 7);
  larger.tokens.resize(kBatch * kContext);
  larger.targets.resize(kBatch * kContext);
  EXPECT_EQ(larger, whole);
}

// A rank may hold any elements of a field, and others of the next: here positions 1 to 2 of rows 0,
// 3 and 4 of the one, and rows 4 and 5 of the other with a row of padding behind them.
TEST(Batches, APieceOfAFieldIsWhatItsRunsSay) {
  const auto data = count_to(100'000);
  Batches batches = batches_of(data, kBatch, kContext, 1, "train");
  batches.pad_with({{"targets", -100}});
  const DrawnPiece columns{.size = 6,
                           .runs = {{1, 0, 2}, {3 * kContext + 1, 2, 2}, {4 * kContext + 1, 4, 2}}};
  const DrawnPiece rows{.size = 3 * kContext, .runs = {{4 * kContext, 0, 2 * kContext}}};
  const Batches piece = batches.shared(std::array{columns, rows});
  const Filled whole = fill(batches, 7);
  Batch drawn(piece);
  piece.fill(7, drawn.to);
  std::vector<int32_t> tokens, targets(whole.targets.begin() + 4 * kContext, whole.targets.end());
  for (const int64_t row : {0, 3, 4}) {
    for (const int64_t at : {1, 2}) tokens.push_back(whole.tokens[row * kContext + at]);
  }
  targets.resize(3 * kContext, -100);
  EXPECT_EQ(ids_of(drawn, 0), tokens);
  EXPECT_EQ(ids_of(drawn, 1), targets);
  EXPECT_EQ(fill(piece.whole(), 7), whole);
}

// Rows behind the last window count for nothing, whoever draws them.
TEST(Batches, WindowsInOrderArePaddedBehindTheLast) {
  const auto data = count_to(8 * kContext + 1);
  Batches batches = batches_of(data, kBatch, kContext, 1, "validation");
  batches.pad_with({{"targets", -100}});
  ASSERT_EQ(batches.count_in_order(), 8);
  Batch all(batches);
  batches.fill_in_order(kBatch, all.to);
  const std::vector<int32_t> tokens = ids_of(all, 0), targets = ids_of(all, 1);
  for (int64_t i = 0; i < kBatch * kContext; ++i) {
    const int64_t at = kBatch * kContext + i;
    EXPECT_EQ(targets[i], at < 8 * kContext ? at + 1 : -100);
    if (at < 8 * kContext) {
      EXPECT_EQ(tokens[i], at);
    }
  }
  const Batches last = rows_of(batches, 1, 3);
  Batch some(last);
  last.fill_in_order(kBatch, some.to);
  EXPECT_EQ(ids_of(some, 1),
            std::vector(targets.begin() + kContext, targets.begin() + 4 * kContext));
}

TEST(Batches, EveryStartIsTakenAboutEquallyOften) {
  constexpr int kStarts = 8;
  const auto data = count_to(kContext + kStarts);
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
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
  const Filled filled = fill(batches_of(data, 1, kContext, 1, "train"), 0);
  EXPECT_EQ(filled.tokens, count_to(kContext));
  EXPECT_EQ(filled.targets.back(), kContext);
}

TEST(Batches, RefusesDataShorterThanTheContext) {
  const auto data = count_to(40);
  EXPECT_EQ(error_text([&] { batches_of(data, 1, 64, 1, "train"); }),
            "the training part of the data has 40 tokens, but a context of 64 needs at least 65" +
                std::string(advice_on_length(true)));
  EXPECT_EQ(error_text([&] { batches_of(data, 1, 40, 1, "validation"); }),
            "the validation part of the data has 40 tokens, but a context of 40 needs at least 41" +
                std::string(advice_on_length(false)));
  EXPECT_NE(error_text([&] { batches_of({}, 1, 1, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { batches_of(data, 1, INT64_MAX, 1, "train"); }), "");
}

TEST(Batches, RefusesSizesThatAreNoSizes) {
  const auto data = count_to(40);
  EXPECT_NE(error_text([&] { batches_of(data, 0, 4, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { batches_of(data, -1, 4, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { batches_of(data, 1, 0, 1, "train"); }), "");
  EXPECT_NE(error_text([&] { batches_of(data, int64_t{1} << 62, 4, 1, "train"); }), "");
}

// Entry i of every field is that of the same token, whatever the field's dtype and width, in whole
// batches, parts of them and crops.
TEST(Batches, EveryFieldHasTheSameCrop) {
  const auto data = count_to(1000);
  std::vector<uint16_t> narrow(1000);
  std::vector<double> rows(3000);
  for (size_t i = 0; i < 1000; ++i) narrow[i] = static_cast<uint16_t>(2 * i);
  for (size_t i = 0; i < 3000; ++i) rows[i] = static_cast<double>(i) / 2;
  const auto bytes = [](const auto& numbers) {
    return reinterpret_cast<const std::byte*>(numbers.data());
  };
  const Batches batches(
      {{.name = "tokens", .data = bytes(data)},
       {.name = "teacher", .data = bytes(rows), .element = Element::kF64, .width = 3},
       {.name = "segments", .data = bytes(narrow), .element = Element::kU16}},
      1000, kBatch, kContext, 1, "train");
  for (int64_t step = 0; step < 20; ++step) {
    Batch whole(batches), parts(batches);
    batches.fill(step, whole.to);
    for (int64_t first = 0; first < kBatch; first += 2) {
      std::vector<void*> to;
      for (size_t f = 0; f < whole.fields.size(); ++f) {
        to.push_back(parts.fields[f].data() + first * batches.bytes_per_sample(f));
      }
      rows_of(batches, first, 2).fill(step, to);
    }
    EXPECT_EQ(whole.fields, parts.fields);
    const auto tokens = ids_of(whole, 0), segments = ids_of(whole, 2);
    const Filled plain = fill(batches_of(data, kBatch, kContext, 1, "train"), step);
    EXPECT_EQ(tokens, plain.tokens) << "further fields change no crop";
    const auto* teacher = reinterpret_cast<const float*>(whole.fields[1].data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(segments[i], 2 * tokens[i]);
      for (int k = 0; k < 3; ++k) {
        ASSERT_EQ(teacher[3 * i + k], static_cast<float>(3 * tokens[i] + k) / 2);
      }
    }
  }
}

TEST(Prefetcher, GivesTheBatchesInOrder) {
  const auto data = count_to(1000);
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
  Prefetcher prefetcher(batches, 41);
  for (int64_t step = 41; step < 300; ++step) {
    const Batch& batch = prefetcher.next();
    const Filled expected = fill(batches, step);
    ASSERT_EQ(batch.step, step);
    ASSERT_EQ(ids_of(batch, 0), expected.tokens);
    ASSERT_EQ(ids_of(batch, 1), expected.targets);
  }
}

TEST(Prefetcher, IsDestroyedCleanlyAtAnyTime) {
  const auto data = count_to(1000);
  const Batches batches = batches_of(data, kBatch, kContext, 1, "train");
  for (int round = 0; round < 100; ++round) {
    Prefetcher prefetcher(batches, 0);
    for (int step = 0; step < round % 4; ++step) EXPECT_EQ(prefetcher.next().step, step);
  }
}

TEST(Prefetcher, OutlivesTheBatchesItWasMadeFrom) {
  const auto data = count_to(1000);
  const Filled expected = fill(batches_of(data, kBatch, kContext, 1, "train"), 0);
  Prefetcher prefetcher(batches_of(data, kBatch, kContext, 1, "train"), 0);
  EXPECT_EQ(ids_of(prefetcher.next(), 0), expected.tokens);
}

}  // namespace
}  // namespace adjoint
