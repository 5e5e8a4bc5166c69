// docs/json.md is the vocabulary of --json: whatever a command prints is in its tables, and is what
// they say; and what its tables list is there.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/json_tables.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

using nlohmann::json;

class Vocabulary : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i) + "\n";
    write_file_atomically(folder_ / "book.txt", text);
  }

  void expect_said(const std::string& command, const std::string& section) {
    const Outcome o =
        run(command, "cd " + folder_.string() + " && OMP_NUM_THREADS=1 XDG_CACHE_HOME=.",
            "2>errors.txt");  // nothing that this machine has learned
    const std::string errors = read_file(folder_ / "errors.txt");
    ASSERT_EQ(o.code, 0) << command << "\n" << o.text << errors;
    const json answer =
        json::parse(o.text.substr(0, section == "generate" ? o.text.find('\n') : std::string::npos),
                    nullptr, false);
    ASSERT_TRUE(answer.is_object()) << command << "\n" << o.text.substr(0, 300) << errors;
    EXPECT_EQ(judge_.judge(answer, section, section), "") << command;
    if (section != "generate") {
      const std::string word = command.substr(0, command.find(' '));
      EXPECT_EQ(answer["command"], word == "--version" ? "version" : word) << command;
    }
  }

  const JsonJudge judge_;
  const TempFolder temporary_;  // of this test alone: several run at a time
  const std::filesystem::path folder_ = temporary_ / "";
};

constexpr const char* kSmall =
    " --model char --set layers=2 hidden=16 heads=2 vocab=32 --context 8 --batch 4 --json";

TEST_F(Vocabulary, OfSchemes) {
  const std::string show = std::string("show") + kSmall;
  expect_said(show, "show");
  for (const char* more :
       {" --level chain", " --level block", " --step", " --step --level block",
        " --stack 'bf16 | checkpoint(every=1)'", " --stack 'lora(2)' --diff",
        " --stack 'checkpoint(every=1)' --memory-states", " --stack 'pipeline(2)' --memory-states",
        " --stack 'data_parallel(2) | zero(3)'", " --stack 'offload(optimizer)'", " --text"}) {
    expect_said(show + more, "show");
  }
  expect_said("models --json", "models");
  expect_said("functors --json", "functors");
  expect_said("ops --json", "ops");
  expect_said("help lora --json", "help");
  expect_said("--version --json", "version");
}

TEST_F(Vocabulary, OfPlans) {
  const std::string plan = std::string("plan --threads 1") + kSmall;
  for (const char* more : {"", " --by block --compare 'checkpoint(every=1)'",
                           " --by tensor --stack 'offload(optimizer)'",
                           " --timeline --stack 'offload(activations)'", " --fit 5MB", " --measure",
                           " --stack 'data_parallel(2)'", " --stack 'pipeline(2)' --timeline"}) {
    expect_said(plan + more, "plan");
  }
  expect_said(plan + " --pareto", "the-curve-of-budgets");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "pareto.svg")) << "nobody asked for a file";
}

TEST_F(Vocabulary, OfRuns) {
  expect_said(
      "train --model char --set layers=2 hidden=16 heads=2 --context 8 --batch 2 --steps 4 "
      "--log-every 2 --data book.txt --stack 'lora(2)' --threads 1 --out run --json",
      "train");
  std::istringstream metrics(read_file(folder_ / "run" / "metrics.jsonl"));
  std::string line;
  int lines = 0;
  for (; std::getline(metrics, line); ++lines) {
    EXPECT_EQ(judge_.judge(json::parse(line), "metrics.jsonl", "metrics"), "") << line;
    EXPECT_GT(json::parse(line).at("memory_bytes"), 1'000'000) << line;
  }
  EXPECT_GT(lines, 0);
  expect_said("eval --model run --data book.txt --json", "eval");
  expect_said("generate --model run --prompt the --tokens 3 --json", "generate");
  expect_said("generate --model run --prompt the --tokens 3 --samples 3 --json", "generate");
  expect_said("tokenizer info --tokenizer run --json", "tokenizer-info");
  expect_said("merge --run run --out merged --json", "merge");
  expect_said("quantize --run merged --out codes --format int8 --per channel --method round --json",
              "quantize");
}

TEST_F(Vocabulary, OfWhatIsMeasured) {
  expect_said(std::string("profile --threads 1 --out profile") + kSmall, "profile");
  expect_said(std::string("bench step --steps 1 --threads 1") + kSmall, "bench-step");
  expect_said(std::string("verify --stack bf16") + kSmall, "verify");
  expect_said(std::string("plan --measure --threads 1 --stack 'data_parallel(2)'") + kSmall,
              "plan");
  expect_said(std::string("plan --measure --threads 1 --write-schedule s.schedule --stack "
                          "'pipeline(2, schedule=zb_2p, parts=4)'") +
                  kSmall,
              "plan");
  expect_said(std::string("profile --threads 1 --out ranks --stack 'data_parallel(2)'") + kSmall,
              "profile");
  expect_said(std::string("profile --threads 1 --out stages --stack 'pipeline(2)'") + kSmall,
              "profile");
}

TEST_F(Vocabulary, OfBenches) {
  expect_said(std::string("bench ops --steps 1 --threads 1") + kSmall, "bench-ops");
  expect_said(std::string("bench sweep --steps 1 --warmup 0 --batches 1,2 --contexts 4,8") + kSmall,
              "bench-sweep");
  expect_said(std::string("bench tokens --steps 2 --warmup 1 --threads 1") + kSmall,
              "bench-tokens");
  expect_said("bench comm --ranks 2 --sizes 1KiB --json", "bench-comm");
  expect_said(std::string("bench ranks --rounds 1 --steps 1") + kSmall, "bench-ranks");
  expect_said(std::string("bench ranks --rounds 1 --steps 1 --stack 'pipeline(2)'") + kSmall,
              "bench-ranks");
  expect_said("tokenizer train --data book.txt --vocab 300 --out t.json --json", "tokenizer-train");
  expect_said("tokenizer speed --tokenizer t.json book.txt --json", "tokenizer-speed");
}

// The judge itself: a key that is not there, and one that is something else, are told.
TEST_F(Vocabulary, TellsWhatIsNotInIt) {
  EXPECT_NE(judge_.judge({{"command", "show"}, {"colour", 1}}, "show", "show"), "");
  EXPECT_NE(judge_.judge({{"command", "show"}, {"batch", "four"}}, "show", "show"), "");
  const JsonJudge judge({{"a", {{"names", {"list of [b](#b)"}}, {"more", {"number", true}}}},
                         {"b", {{"name", {"text"}}}}});
  EXPECT_EQ(judge.judge({{"names", {{{"name", "x"}}}}}, "a", "a"), "");
  EXPECT_EQ(judge.judge({{"names", {{{"name", "x"}}}}, {"more", 3}}, "a", "a"), "");
  EXPECT_NE(judge.judge({{"names", {{{"name", 3}}}}}, "a", "a"), "");
  EXPECT_NE(judge.judge({{"more", 3}}, "a", "a"), "") << "one that is not there";
}

}  // namespace
}  // namespace adjoint
