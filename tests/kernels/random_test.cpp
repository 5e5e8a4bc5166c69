// Random numbers belong to logical elements: the counter of an element is its index in the whole,
// unsplit, unpadded object, whose first axis is that of samples. So a batch in pieces draws what
// the whole batch draws, forward and backward, in every dtype, padded or seen through strides.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

constexpr const char* kKey = "block[1].dropout#2";
constexpr double kRate = 0.3;

Type samples_of(int64_t count, int64_t rows, int64_t width, Dtype dtype, bool padded) {
  Type type{dtype, {{"batch", count}, {"seq", rows}, {"hidden", width}}};
  if (padded) type.axes.back().padded = width + 5;
  return type;
}

// y = dropout(x) and dx of <w, y>; inputs x, counter, w.
Scheme dropout_scheme(const Type& type) {
  Scheme s;
  const Value x = s.add_input({.type = type, .source = {"x"}, .role = Role::kInput});
  Builder builder(s);
  const Value counter = builder.control(kRandomCounter, random_counter_type());
  builder.at({kKey}, Phase::kForward, Role::kActivation);
  const Value y =
      builder.emit("dropout", {x, counter}, {{"rate", kRate}, {"key", std::string(kKey)}});
  const Value w = s.add_input({.type = type, .source = {"w"}, .role = Role::kInput});
  const std::pair<Value, Value> seeds[] = {{y, w}};
  const Value wanted[] = {x};
  s.outputs = {y, *backpropagate(builder, 0, 1, seeds, wanted)[0]};
  verify(s);
  return s;
}

Numbers some_numbers(int64_t count, Dtype dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Numbers x(count);
  for (double& value : x) value = round_element(normal(random), dtype);
  return x;
}

Numbers part_of(const Numbers& x, int64_t first, int64_t count) {
  return {x.begin() + first, x.begin() + first + count};
}

struct Case {
  Dtype dtype;
  bool padded, reference;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool padded : {false, true}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
      cases.push_back({dtype, padded, false});
    }
    cases.push_back({Dtype::kF64, padded, true});
  }
  return cases;
}

std::string said(const Case& c) {
  return std::string(name(c.dtype)) + (c.padded ? " padded" : "") +
         (c.reference ? " reference" : "");
}

// 5 * 7 elements a sample are no whole number of Philox's blocks of four; 3 * 1031 are more than
// one piece of a row.
constexpr std::pair<int64_t, int64_t> kShapes[] = {{5, 7}, {3, 1031}, {1, 1}};

TEST(Random, APieceOfTheBatchDrawsWhatTheWholeDraws) {
  for (const Case& c : all_cases()) {
    for (const auto& [rows, width] : kShapes) {
      const int64_t sample = rows * width;
      const Numbers x = some_numbers(6 * sample, c.dtype, 1),
                    w = some_numbers(6 * sample, c.dtype, 2);
      const auto run = [&](int64_t first, int64_t count) {
        return run_scheme(dropout_scheme(samples_of(count, rows, width, c.dtype, c.padded)),
                          {part_of(x, first * sample, count * sample),
                           {7, 3, static_cast<double>(first)},
                           part_of(w, first * sample, count * sample)},
                          c.reference);
      };
      const std::vector<Numbers> whole = run(0, 6);
      for (const std::vector<int64_t>& cuts :
           {std::vector<int64_t>{0, 3, 6}, {0, 1, 2, 3, 4, 5, 6}, {0, 4, 6}}) {
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          const int64_t first = cuts[i], count = cuts[i + 1] - first;
          const std::vector<Numbers> piece = run(first, count);
          for (const int k : {0, 1}) {
            EXPECT_EQ(piece[k], part_of(whole[k], first * sample, count * sample))
                << said(c) << (k ? ", gradient" : "") << " of samples " << first << " on";
          }
        }
      }
    }
  }
}

TEST(Random, TheCounterIsTheLogicalElement) {
  const RandomStream stream{random_key(7, kKey), 3};
  for (const Case& c : all_cases()) {
    for (const auto& [rows, width] : kShapes) {
      const int64_t sample = rows * width, first = 4;
      const Numbers ones(2 * sample, 1.0);
      const auto out = run_scheme(dropout_scheme(samples_of(2, rows, width, c.dtype, c.padded)),
                                  {ones, {7, 3, static_cast<double>(first)}, ones}, c.reference);
      for (int64_t i = 0; i < 2 * sample; ++i) {
        const bool dropped = stream.uniform(first * sample + i) < kRate;
        ASSERT_EQ(out[0][i] == 0, dropped) << said(c) << " element " << i;
        ASSERT_EQ(out[1][i] == 0, dropped) << said(c) << " gradient of element " << i;
      }
    }
  }
}

// A column of a wider object lies with gaps between its rows: the mask is that of the column.
TEST(Random, StridesDoNotCount) {
  const Type wide = samples_of(4, 3, 11, Dtype::kF32, false);
  Scheme s;
  const Value x = s.add_input({.type = wide, .source = {"x"}, .role = Role::kInput});
  Builder builder(s);
  const Value counter = builder.control(kRandomCounter, random_counter_type());
  const Value part = builder.emit("slice", {x}, {{"start", int64_t{2}}, {"size", int64_t{5}}});
  s.outputs = {
      builder.emit("dropout", {part, counter}, {{"rate", kRate}, {"key", std::string(kKey)}})};
  const Numbers ones(4 * 3 * 11, 1.0), few(4 * 3 * 5, 1.0), counts = {7, 3, 2};
  const auto strided = run_scheme(s, {ones, counts}, false);
  const auto dense = run_scheme(dropout_scheme(samples_of(4, 3, 5, Dtype::kF32, false)),
                                {few, counts, few}, false);
  EXPECT_EQ(strided[0], dense[0]);
}

// What seed, step and path are for.
TEST(Random, SeedStepAndPathAllMatter) {
  Scheme s = dropout_scheme(samples_of(2, 5, 7, Dtype::kF32, false));
  const Numbers ones(70, 1.0);
  const auto mask = [&](Numbers counter) { return run_scheme(s, {ones, counter, ones}, false)[0]; };
  const Numbers here = mask({7, 3, 0});
  EXPECT_NE(mask({8, 3, 0}), here);
  EXPECT_NE(mask({7, 4, 0}), here);
  s.morphisms[0].attrs["key"] = std::string("block[0].dropout#2");
  EXPECT_NE(mask({7, 3, 0}), here);
}

}  // namespace
}  // namespace adjoint
