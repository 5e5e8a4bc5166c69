// What differs when a run goes on otherwise than it began.
#include "train/doubts.h"

#include <gtest/gtest.h>

#include <array>

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

TEST(Doubts, OfDocumentsThatTeachNothing) {
  EXPECT_EQ(doubts_about_silence({.tokens = 100, .documents = 10}, {}), Words{});
  EXPECT_EQ(doubts_about_silence({.tokens = 100, .documents = 300, .silent = 12},
                                 {{"talks.jsonl", 7}, {"talks.jsonl", 9}}),
            Words{"12 of 300 documents (4%) hold nothing that is learned; the first: talks.jsonl: "
                  "line 7, talks.jsonl: line 9"});
  EXPECT_EQ(doubts_about_silence({.tokens = 100, .documents = 3, .silent = 1}, {{"a.txt", 0}}),
            Words{"1 of 3 documents (33.3%) hold nothing that is learned; a.txt"});
}

TEST(Doubts, DocumentsThatAreLongerThanASampleAreTold) {
  EXPECT_EQ(notes_about_length({.tokens = 100, .documents = 10}, 64), Words{});
  EXPECT_EQ(notes_about_length({.tokens = 1000, .documents = 120, .longer = 3, .beyond = 125}, 64),
            Words{"3 of 120 documents are longer than a sample of 64 tokens (--seq), and 12.5% of "
                  "all tokens are beyond it: they are read in samples of their own, without what "
                  "stands before them"});
}

TEST(Doubts, OfParametersThatStayAsTheyBegan) {
  EXPECT_EQ(doubts_about_frozen(1000, 500), Words{}) << "half of them are trained";
  EXPECT_EQ(doubts_about_frozen(1000, 499),
            Words{"501 of 1,000 parameters stay at random initial values, because they are frozen; "
                  "did you mean --init FOLDER?"});
}

// Told as a warning is what parameters depend on, and as a note what they do not.
TEST(ResumedDoubts, AreWarningsWhereParametersDependOnThem) {
  const auto said = [](json was, const json& now, int64_t done) {
    was["schedule"] = was.value("schedule", "wsd");
    json is = was;
    is.update(now);
    Words words;
    for (const ResumedDoubt& doubt :
         doubts_of_resuming(changed_options(was, is), make_config(std::array{was}),
                            make_config(std::array{is}), done)) {
      words.push_back((doubt.matters ? "warning: " : "note: ") + doubt.sentence);
    }
    return words;
  };
  const std::string differ = "these settings differ from the resumed run's: ";
  const json run = {{"steps", 4000}, {"save_every", 500}, {"lr", 0.001}, {"on_spike", "stop"}};
  EXPECT_EQ(said(run, {{"save_every", 3}}, 4000),
            Words{"note: " + differ + "save_every: 500 -> 3; no parameter depends on them"});
  EXPECT_EQ(said(run, {{"steps", 8000}}, 2000), Words{"note: " + differ + "steps: 4000 -> 8000"})
      << "before it cools down the rates are the same";
  EXPECT_EQ(said(run, {{"steps", 8000}}, 4000),
            Words{"warning: " + differ +
                  "steps: 4000 -> 8000; by the schedule of this length steps 1 to 4000 would have "
                  "had other rates"});
  EXPECT_EQ(said(run, {{"steps", 8000}, {"lr", 0.002}, {"save_every", 3}}, 4000),
            (Words{"warning: " + differ + "steps: 4000 -> 8000, lr: 0.001 -> 0.002",
                   "note: " + differ + "save_every: 500 -> 3; no parameter depends on them"}));
  const json patient = {{"steps", 4000}, {"eval_every", 250}, {"patience", 2}};
  EXPECT_EQ(said(patient, {{"eval_every", 3}}, 10),
            Words{"warning: " + differ + "eval_every: 250 -> 3"})
      << "what is found out sooner ends the run sooner";
  EXPECT_EQ(said(run, {{"save_every", 3}, {"on_spike", "back"}}, 10),
            Words{"warning: " + differ + "save_every: 500 -> 3, on_spike: stop -> back"});
}

}  // namespace
}  // namespace adjoint
