// What differs when a run goes on otherwise than it began.
#include "train/doubts.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

using nlohmann::json;

std::vector<std::string> words_for(const json& was, const json& is,
                                   const std::map<std::string, double>& own) {
  std::vector<std::string> words;
  for (const ChangedOption& changed : changed_options(was, is, own)) {
    words.push_back(changed.in_words());
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(ChangedOptions, OfTheRun) {
  const json was = {{"lr", 0.001}, {"batch", 4}, {"stack", ""}, {"out", "a"}};
  const json is = {{"lr", 0.002}, {"batch", 4}, {"stack", "bf16"}, {"out", "b"}};
  EXPECT_EQ(words_for(was, was, {}), Words{});
  EXPECT_EQ(words_for(was, is, {}), (Words{"lr: 0.001 -> 0.002", "stack: none -> bf16"}));
}

TEST(ChangedOptions, OfNumbersThatOneOfThemNeverSaid) {
  const json none = {{"set", json::object()}}, some = {{"set", {{"dropout", 0.3}}}};
  EXPECT_EQ(words_for(none, some, {{"dropout", 0.1}}), Words{"set dropout: 0.1 -> 0.3"});
  EXPECT_EQ(words_for(json::object(), some, {}), Words{"set dropout: unsaid -> 0.3"});
  EXPECT_EQ(words_for(some, none, {{"dropout", 0}}), Words{"set dropout: 0.3 -> 0.0"});
  EXPECT_EQ(words_for(none, some, {{"dropout", 0.3}}), Words{}) << "said, and the same";
}

TEST(Doubts, OfParametersThatStayAsTheyBegan) {
  EXPECT_EQ(doubts_about_frozen(1000, 500), Words{}) << "half of them are trained";
  EXPECT_EQ(doubts_about_frozen(1000, 499),
            Words{"501 of 1,000 parameters stay at random initial values, because they are frozen; "
                  "did you mean --init FOLDER?"});
}

}  // namespace
}  // namespace adjoint
