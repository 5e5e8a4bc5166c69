// Which token follows, and which text may be shown.
#include "train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace adjoint {
namespace {

// Logits of these probabilities, up to a constant.
std::vector<float> logits_for(const std::vector<double>& shares) {
  std::vector<float> logits;
  for (const double share : shares) logits.push_back(static_cast<float>(std::log(share) + 3));
  return logits;
}

// How often each token is drawn.
std::map<int32_t, double> drawn(const std::vector<double>& shares, const SampleOptions& options,
                                std::span<const int32_t> text = {}) {
  constexpr int kDraws = 4000;
  std::map<int32_t, double> counts;
  for (int i = 0; i < kDraws; ++i) {
    counts[sample_token(logits_for(shares), text, options, 0, i)] += 1.0 / kDraws;
  }
  return counts;
}

void expect_shares(const std::map<int32_t, double>& got, const std::map<int32_t, double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [token, share] : want) {
    ASSERT_EQ(got.count(token), 1u) << token;
    EXPECT_NEAR(got.at(token), share, 0.03) << token;
  }
}

const std::vector<double> kShares = {0.15, 0.5, 0.05, 0.3};

TEST(Sampler, DrawsByProbability) {
  expect_shares(drawn(kShares, {.temperature = 1}), {{0, 0.15}, {1, 0.5}, {2, 0.05}, {3, 0.3}});
  // At twice the temperature probabilities are their square roots'.
  double total = 0;
  for (const double share : kShares) total += std::sqrt(share);
  const auto root = [&](double share) { return std::sqrt(share) / total; };
  expect_shares(drawn(kShares, {.temperature = 2}),
                {{0, root(0.15)}, {1, root(0.5)}, {2, root(0.05)}, {3, root(0.3)}});
  expect_shares(drawn(kShares, {.temperature = 0}), {{1, 1}});
}

TEST(Sampler, CutsTheUnlikely) {
  expect_shares(drawn(kShares, {.temperature = 1, .top_k = 2}), {{1, 0.625}, {3, 0.375}});
  expect_shares(drawn(kShares, {.temperature = 1, .top_k = 9}),
                {{0, 0.15}, {1, 0.5}, {2, 0.05}, {3, 0.3}});
  // Half is not enough of them, and the next one makes it enough.
  expect_shares(drawn(kShares, {.temperature = 1, .top_p = 0.6}), {{1, 0.625}, {3, 0.375}});
  expect_shares(drawn(kShares, {.temperature = 1, .top_p = 0.45}), {{1, 1}});
  // A share of the likeliest one's probability.
  expect_shares(drawn(kShares, {.temperature = 1, .min_p = 0.25}),
                {{0, 0.15 / 0.95}, {1, 0.5 / 0.95}, {3, 0.3 / 0.95}});
  expect_shares(drawn(kShares, {.temperature = 1, .min_p = 0.4}), {{1, 0.625}, {3, 0.375}});
  // Top-p is of what top-k left.
  expect_shares(drawn(kShares, {.temperature = 1, .top_k = 2, .top_p = 0.6}), {{1, 1}});
}

TEST(Sampler, KeepsItsSensesAtTheEdges) {
  // The least share of anything keeps the likeliest token, and nothing else.
  expect_shares(drawn(kShares, {.temperature = 1, .top_p = 1e-9}), {{1, 1}});
  expect_shares(drawn(kShares, {.temperature = 1, .min_p = 1}), {{1, 1}});
  expect_shares(drawn(kShares, {.temperature = 1, .top_k = 1}), {{1, 1}});
  expect_shares(drawn(kShares, {.temperature = 1e-4}), {{1, 1}});
  // All of them, whatever says so.
  const std::map<int32_t, double> all = {{0, 0.15}, {1, 0.5}, {2, 0.05}, {3, 0.3}};
  expect_shares(drawn(kShares, {.temperature = 1, .top_k = 4, .top_p = 1, .min_p = 0}), all);
  // Equals: the first of them, half of them, or each.
  const std::vector<double> equal(4, 0.25);
  expect_shares(drawn(equal, {.temperature = 0}), {{0, 1}});
  expect_shares(drawn(equal, {.temperature = 1, .top_k = 2}), {{0, 0.5}, {1, 0.5}});
  expect_shares(drawn(equal, {.temperature = 1, .top_p = 0.5}), {{0, 0.5}, {1, 0.5}});
  expect_shares(drawn(equal, {.temperature = 1, .min_p = 1}),
                {{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}});
  // Logits of a model that has gone wrong are no reason to leave the vocabulary.
  EXPECT_EQ(sample_token({NAN, NAN}, {}, {.temperature = 1}, 0, 0), 0);
  EXPECT_EQ(sample_token({NAN, -INFINITY, 2}, {}, {.temperature = 1}, 0, 0), 2);
  EXPECT_EQ(sample_token({1, INFINITY, 2}, {}, {.temperature = 1, .top_p = 0.5}, 0, 0), 1);
}

TEST(Sampler, WeighsRepetition) {
  const std::vector<int32_t> text = {1, 7};
  const SampleOptions options{.temperature = 0, .repetition = 4};
  // Positive logits are divided, negative ones multiplied.
  EXPECT_EQ(sample_token({1, 3, 2}, text, options, 0, 0), 2);
  EXPECT_EQ(sample_token({-3, -1, -2}, text, options, 0, 0), 2);
  EXPECT_EQ(sample_token({1, 3, 2}, {}, options, 0, 0), 1);
}

TEST(Sampler, SeedsSamplesAndPlacesDiffer) {
  const auto draw = [](uint64_t seed, int64_t sample) {
    std::vector<int32_t> tokens;
    for (int place = 0; place < 60; ++place) {
      tokens.push_back(
          sample_token(logits_for(kShares), {}, {.temperature = 1, .seed = seed}, sample, place));
    }
    return tokens;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

TEST(Sampler, RefusesNumbersThatMakeNoSense) {
  const auto complaint = [](const SampleOptions& options) -> std::string {
    try {
      check(options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({}), "");
  EXPECT_EQ(complaint({.top_p = 0}), "--top-p: wanted above 0, at most 1, found 0");
  EXPECT_EQ(complaint({.min_p = 2}), "--min-p: wanted 0 to 1, found 2");
  EXPECT_EQ(complaint({.repetition = 0}), "--repetition-penalty: wanted above 0, found 0");
  EXPECT_EQ(complaint({.stops = {""}}), "--stop: wanted a text, found none");
  EXPECT_EQ(complaint({.tokens = 0}), "--tokens: wanted 1 to 1000000, found 0");
}

TEST(StoppedText, HoldsBackCharactersThatAreNotWhole) {
  const auto bytes = make_tokenizer("byte", "");
  StoppedText stream(*bytes, {});
  std::vector<std::string> shown;
  for (const int32_t token : bytes->encode("a\u00fc\u20ac")) shown.push_back(stream.add(token));
  EXPECT_EQ(shown, (std::vector<std::string>{"a", "", "\u00fc", "", "", "\u20ac"}));
  // What never becomes whole is shown in the end.
  EXPECT_EQ(stream.add(0xE2), "");
  EXPECT_EQ(stream.finish(), "\xE2");
  EXPECT_EQ(stream.text(), "a\u00fc\u20ac\xE2");
}

TEST(StoppedText, EndsBeforeAStop) {
  const auto bytes = make_tokenizer("byte", "");
  const std::vector<std::string> stops = {"END", "\n\n"};
  StoppedText stream(*bytes, stops);
  std::string shown;
  for (const int32_t token : bytes->encode("an E, an EN\n, an END and")) {
    if (stream.stopped()) break;
    shown += stream.add(token);
    // Nothing that may become a stop is shown.
    EXPECT_FALSE(shown.ends_with("E")) << shown;
  }
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(shown + stream.finish(), "an E, an EN\n, an ");
}

}  // namespace
}  // namespace adjoint
