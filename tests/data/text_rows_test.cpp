#include "data/text_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "data/corpus.h"
#include "data/permutation.h"

namespace adjoint {
namespace {

using Ids = std::vector<int32_t>;

TEST(Permutation, HasEveryNumberOnce) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 1000, 65536, 70001}) {
    for (const uint64_t key : {0ul, 1ul, ~0ul}) {
      const Permutation order(n, key);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_LT(order(i), n);
        ASSERT_FALSE(seen[order(i)]) << n;
        seen[order(i)] = true;
      }
    }
  }
  const Permutation large(uint64_t{1} << 62, 5);
  EXPECT_NE(large(0), large(1));
}

// All orders of four numbers come about equally often, over keys that are neighbours.
TEST(Permutation, KeysGiveAllOrders) {
  std::map<std::vector<uint64_t>, int> times;
  constexpr int kKeys = 24'000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation order(4, key);
    ++times[{order(0), order(1), order(2), order(3)}];
  }
  EXPECT_EQ(times.size(), 24);
  double chi_squared = 0;
  for (const auto& [order, count] : times) {
    chi_squared += (count - kKeys / 24.0) * (count - kKeys / 24.0) / (kKeys / 24.0);
  }
  // Above this once in a thousand times, for 23 degrees of freedom; the keys are fixed.
  EXPECT_LT(chi_squared, 49.73);
}

// Documents of 3, 1, 7, 2 and 4 tokens, in two shards; token i is i + 1. The second is not trained.
TokenStream documents() {
  Ids ids(17);
  std::iota(ids.begin(), ids.end(), 1);
  std::vector<uint32_t> tokens(ids.begin(), ids.end());
  tokens[1] |= kNotTrained;
  TokenStream stream;
  stream.add(std::make_shared<TokenShard>(std::vector<uint32_t>(tokens.begin(), tokens.begin() + 6),
                                          std::vector<int64_t>{3, 4}));
  stream.add(std::make_shared<TokenShard>(std::vector<uint32_t>(tokens.begin() + 6, tokens.end()),
                                          std::vector<int64_t>{5, 7, 11}));
  return stream;
}

using Entry = TextRows::Entry;

Ids row_of(const TextRows& rows, int64_t index, int64_t context) {
  Ids row(context, 99);
  std::byte* const to[] = {reinterpret_cast<std::byte*>(row.data())};
  rows.fill(index, to);
  return row;
}

std::vector<Ids> rows_of(TextRowsOptions options, Entry entry) {
  const TokenStream stream = documents();
  if (options.end == 0) options.end = stream.size();
  const TextRows rows(stream, options, {entry});
  std::vector<Ids> all;
  for (int64_t i = 0; i < rows.count(); ++i) all.push_back(row_of(rows, i, options.context));
  return all;
}

TEST(TextRows, DocumentsArePackedWhole) {
  const TextRowsOptions packed{.packing = Packing::kDocuments, .context = 5};
  EXPECT_EQ(rows_of(packed, Entry::kTokens),
            (std::vector<Ids>{
                {1, 2, 3, 4, 0}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 0}, {14, 15, 16, 17, 0}}));
  EXPECT_EQ(
      rows_of(packed, Entry::kTargets),
      (std::vector<Ids>{
          {-1, 3, -1, -1, -1}, {6, 7, 8, 9, 10}, {11, -1, 13, -1, -1}, {15, 16, 17, -1, -1}}));
  EXPECT_EQ(rows_of(packed, Entry::kSegments),
            (std::vector<Ids>{{0, 0, 0, 1, 2}, {0, 0, 0, 0, 0}, {0, 0, 1, 1, 2}, {0, 0, 0, 0, 1}}));
  EXPECT_EQ(rows_of(packed, Entry::kPositions),
            (std::vector<Ids>{{0, 1, 2, 0, 0}, {0, 1, 2, 3, 4}, {0, 1, 0, 1, 0}, {0, 1, 2, 3, 0}}));
}

TEST(TextRows, PaddedRowsHoldOneDocument) {
  const TextRowsOptions padded{.packing = Packing::kPadded, .context = 5};
  EXPECT_EQ(rows_of(padded, Entry::kTokens), (std::vector<Ids>{{1, 2, 3, 0, 0},
                                                               {4, 0, 0, 0, 0},
                                                               {5, 6, 7, 8, 9},
                                                               {10, 11, 0, 0, 0},
                                                               {12, 13, 0, 0, 0},
                                                               {14, 15, 16, 17, 0}}));
  EXPECT_EQ(rows_of(padded, Entry::kTargets), (std::vector<Ids>{{-1, 3, -1, -1, -1},
                                                                {-1, -1, -1, -1, -1},
                                                                {6, 7, 8, 9, 10},
                                                                {11, -1, -1, -1, -1},
                                                                {13, -1, -1, -1, -1},
                                                                {15, 16, 17, -1, -1}}));
}

TEST(TextRows, WindowsAndCropsReadOnAcrossDocuments) {
  const TextRowsOptions windows{.packing = Packing::kWindows, .context = 5};
  EXPECT_EQ(rows_of(windows, Entry::kTokens),
            (std::vector<Ids>{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, {11, 12, 13, 14, 15}}));
  EXPECT_EQ(rows_of(windows, Entry::kTargets),
            (std::vector<Ids>{{-1, 3, 4, 5, 6}, {7, 8, 9, 10, 11}, {12, 13, 14, 15, 16}}));
  const TextRowsOptions crops{.packing = Packing::kCrops, .begin = 2, .end = 10, .context = 5};
  EXPECT_EQ(rows_of(crops, Entry::kTokens),
            (std::vector<Ids>{{3, 4, 5, 6, 7}, {4, 5, 6, 7, 8}, {5, 6, 7, 8, 9}}));
  TextRowsOptions apart = windows;
  apart.apart = true;
  EXPECT_EQ(rows_of(apart, Entry::kTargets),
            (std::vector<Ids>{{-1, 3, -1, -1, 6}, {7, 8, 9, 10, 11}, {-1, 13, -1, 15, 16}}));
  EXPECT_EQ(rows_of(apart, Entry::kSegments),
            (std::vector<Ids>{{0, 0, 0, 1, 2}, {0, 0, 0, 0, 0}, {0, 1, 1, 2, 2}}));
  EXPECT_EQ(rows_of(apart, Entry::kPositions),
            (std::vector<Ids>{{0, 1, 2, 0, 0}, {0, 1, 2, 3, 4}, {0, 0, 1, 0, 1}}));
}

// Every token is in one row, whatever the context.
TEST(TextRows, PackingLosesNothing) {
  for (const Packing packing : {Packing::kDocuments, Packing::kPadded}) {
    for (int64_t context = 1; context < 20; ++context) {
      Ids all;
      for (const Ids& row : rows_of({.packing = packing, .context = context}, Entry::kTokens)) {
        for (const int32_t id : row) {
          if (id != 0) all.push_back(id);
        }
      }
      Ids wanted(17);
      std::iota(wanted.begin(), wanted.end(), 1);
      EXPECT_EQ(all, wanted) << context;
    }
  }
}

// Numbers its samples from `first` on.
class Numbered : public Samples {
 public:
  Numbered(int32_t first, int64_t count) : first_(first), count_(count) {}
  int64_t count() const override { return count_; }
  void fill(int64_t index, std::span<std::byte* const> to) const noexcept override {
    *reinterpret_cast<int32_t*>(to[0]) = first_ + static_cast<int32_t>(index);
  }
  Tokens tokens_of(int64_t index) const override { return {index, 1}; }

 private:
  int32_t first_;
  int64_t count_;
};

Batches numbered(std::vector<WeightedSamples> sources, int64_t batch) {
  return {{{.name = "tokens"}}, std::move(sources), Batches::Draw::kShuffled, batch, 1, 1, "train"};
}

std::vector<int32_t> draw(const Batches& batches, int64_t step) {
  std::vector<int32_t> row(batches.batch());
  void* const to[] = {row.data()};
  batches.fill(step, to);
  return row;
}

// Of the documents above, of 3, 1, 7, 2 and 4 tokens: where nothing is learned, and what a row of 5
// does not hold.
TEST(TrainingPart, CountsWhatIsLearnedAndWhatIsLonger) {
  const auto part_of = [](TokenStream stream, Sampling sampling, double val_fraction = 0) {
    std::vector<TextCorpus::Part> parts;
    parts.push_back({"d.jsonl", std::move(stream)});
    return TextCorpus(std::move(parts), val_fraction).training_part(sampling);
  };
  const TrainingPart packed =
      part_of(documents(), {.context = 5, .packing = Packing::kDocuments, .ignored = -1});
  EXPECT_TRUE(packed.learned);
  EXPECT_EQ(packed.tokens, 17);
  EXPECT_EQ(packed.documents, 5);
  EXPECT_EQ(packed.silent, 1) << "one token has nothing before it";
  ASSERT_EQ(packed.first_silent.size(), 1u);
  EXPECT_EQ(packed.first_silent[0].token, 3);
  EXPECT_EQ(packed.longer, 1);
  EXPECT_EQ(packed.beyond, 2);
  const TrainingPart crops = part_of(documents(), {.context = 5, .ignored = -1});
  EXPECT_EQ(crops.silent, 0) << "a crop reads on across documents";
  EXPECT_EQ(crops.longer, 0);
  // The last document is for validation, and of the others nothing is learned.
  std::vector<uint32_t> tokens(17);
  for (uint32_t i = 0; i < 17; ++i) tokens[i] = i | (i < 13 && i != 3 ? kNotTrained : 0);
  TokenStream silent;
  silent.add(std::make_shared<TokenShard>(tokens, std::vector<int64_t>{3, 4, 11, 13, 17}));
  const TrainingPart nothing =
      part_of(silent, {.context = 5, .packing = Packing::kPadded, .ignored = -1}, 0.2);
  EXPECT_FALSE(nothing.learned) << "what is learned is a document's first token";
  EXPECT_EQ(nothing.documents, 4);
  EXPECT_EQ(nothing.silent, 4);
  EXPECT_EQ(nothing.first_silent.size(), 3u);
}

TEST(Shuffling, EverySampleComesOncePerEpoch) {
  const Batches batches = numbered({{std::make_shared<Numbered>(0, 37)}}, 5);
  std::vector<int32_t> all;
  for (int64_t step = 0; step < 37; ++step) {
    for (const int32_t sample : draw(batches, step)) all.push_back(sample);
  }
  std::set<std::vector<int32_t>> orders;
  for (size_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int32_t> once(all.begin() + static_cast<std::ptrdiff_t>(37 * epoch),
                              all.begin() + static_cast<std::ptrdiff_t>(37 * (epoch + 1)));
    orders.insert(once);
    EXPECT_EQ(std::set<int32_t>(once.begin(), once.end()).size(), 37);
  }
  EXPECT_EQ(orders.size(), 5) << "each epoch has an order of its own";
  EXPECT_EQ(batches.epoch(0), 0);
  EXPECT_EQ(batches.epoch(37), 5);
}

// Batches that are left out are missing, wherever the run was when it left them out, and nothing
// else is; and another size of batches goes on with the next sample.
TEST(Shuffling, APositionLeavesBatchesOutAndChangesTheirSize) {
  const auto samples = [] {
    return std::vector<WeightedSamples>{{std::make_shared<Numbered>(0, 60)}};
  };
  const Batches plain = numbered(samples(), 5);
  Batches batches = numbered(samples(), 5);
  DataPosition position;
  position.leave_out(7);
  position.leave_out(3);  // found later, because the run went back
  position.leave_out(4);
  position.leave_out(3);
  batches.set_position(position);
  const int64_t read[] = {0, 1, 2, 5, 6, 8, 9};
  for (int64_t step = 0; step < 7; ++step) {
    EXPECT_EQ(draw(batches, step), draw(plain, read[step])) << step;
  }
  EXPECT_DOUBLE_EQ(batches.epoch(7), 50.0 / 60) << "what was left out was passed";
  // From step 4 on, batches of 4; batch 7 lies ahead and is taken in again.
  position.change_size(4, 5);
  EXPECT_EQ(position.left_out, std::vector<int64_t>({3, 4}));
  position.change_size(4, 4);  // resumed twice
  Batches other = numbered(samples(), 4);
  other.set_position(position);
  std::multiset<int32_t> all;
  for (int64_t step = 0; step < 4; ++step) {
    for (const int32_t sample : draw(batches, step)) all.insert(sample);
  }
  for (const int64_t batch : {3, 4}) {
    for (const int32_t sample : draw(plain, batch)) all.insert(sample);
  }
  EXPECT_EQ(all.size(), 30);
  for (int64_t step = 4; all.size() < 60; ++step) {
    for (const int32_t sample : draw(other, step)) all.insert(sample);
  }
  EXPECT_EQ(all.size(), 62) << "batches of 4: two samples are the next epoch's";
  for (int32_t sample = 0; sample < 60; ++sample) EXPECT_GE(all.count(sample), 1) << sample;
}

TEST(Shuffling, SourcesHaveTheirShareAndTheirEpochs) {
  const Batches batches = numbered(
      {{std::make_shared<Numbered>(0, 300), 1}, {std::make_shared<Numbered>(1000, 50), 3}}, 64);
  std::map<int32_t, int64_t> times;
  constexpr int64_t kSteps = 3 * 65536 / 64;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const int32_t sample : draw(batches, step)) ++times[sample];
  }
  int64_t first = 0;
  for (const auto& [sample, count] : times) {
    const int64_t shown = sample < 1000 ? kSteps * 64 / 4 : kSteps * 64 * 3 / 4;
    const int64_t of = sample < 1000 ? 300 : 50;
    if (sample < 1000) first += count;
    EXPECT_GE(count, shown / of) << sample;
    EXPECT_LE(count, shown / of + 1) << sample;
  }
  EXPECT_EQ(times.size(), 350);
  EXPECT_EQ(first, kSteps * 64 / 4) << "exactly a quarter of three blocks";
  // Also in a few samples about a quarter.
  int64_t few = 0;
  for (int64_t step = 0; step < 10; ++step) {
    for (const int32_t sample : draw(batches, step)) few += sample < 1000;
  }
  EXPECT_NEAR(static_cast<double>(few), 160, 40);
}

// Who goes on at a step reads what who never stopped reads, and who reads a part of a batch too.
TEST(Shuffling, IsAFunctionOfTheStepAndTheRow) {
  const auto make = [] {
    return numbered(
        {{std::make_shared<Numbered>(0, 31), 0.2}, {std::make_shared<Numbered>(1000, 7), 0.8}}, 6);
  };
  const Batches first = make(), second = make();
  for (const int64_t step : {0, 1, 17, 100'000, 5}) {
    const auto whole = draw(first, step);
    EXPECT_EQ(whole, draw(second, step));
    for (int64_t row = 0; row < 6; ++row) {
      int32_t one = -1;
      void* const to[] = {&one};
      second.shared(std::array{DrawnPiece{.size = 1, .runs = {{row, 0, 1}}}}).fill(step, to);
      EXPECT_EQ(one, whole[row]);
    }
  }
}

}  // namespace
}  // namespace adjoint
