// The binary as a user meets it: exit codes, one clear sentence, nothing lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "a line of text " + std::to_string(i * 7 % 90) + "\n";
    write("text.txt", text);
  }
  std::string write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string small_run(const std::string& out) const {
    return "train --model char --data " + at("text.txt") + " --steps 4 --batch 2 --context 8" +
           " --eval-batches 1 --save-every 2 --set layers=1 hidden=16 heads=2 --out " + at(out);
  }
  void refused(const std::string& arguments, const std::string& part) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 1) << o.text;
    EXPECT_NE(o.text.find(part), std::string::npos) << o.text;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << "one sentence: " << o.text;
  }
  TempFolder folder_;
};

// Parameters, FLOPs and the step's seconds are those of all stages together, as its tokens are.
TEST_F(Cli, PlansAPipelineAsAWhole) {
  const std::string sizes =
      "plan --json --model char --batch 4 --context 16 --set layers=2 hidden=32 heads=2 --stack ";
  const std::string staged = "'pipeline(2, parts=4)'", plain = "'accumulate(4)'";
  const auto planned = [&](const std::string& flags) {
    const Outcome o = run(sizes + flags);
    EXPECT_EQ(o.code, 0) << o.text;
    return nlohmann::json::parse(o.text);
  };
  const auto pipeline = planned(staged + " --compare " + plain);
  const auto other = planned(plain + " --compare " + staged);
  EXPECT_EQ(pipeline["params"], other["params"]);
  EXPECT_EQ(pipeline["tokens_per_step"], other["tokens_per_step"]);
  // Each end has a gradient of the embedding, 65 x 32 numbers, which are added to each other.
  EXPECT_EQ(pipeline["flops_per_step"].get<int64_t>(),
            other["flops_per_step"].get<int64_t>() + int64_t{65} * 32);
  EXPECT_EQ(pipeline["step_s"], pipeline["pipeline"]["step_s"]);
  EXPECT_EQ(pipeline["step_s"], other["compare"]["step_s"]);
  EXPECT_EQ(pipeline["compare"]["step_s"], other["step_s"]);
}

// The rows of memory states are laid over the plan's timeline, so both plan one step, whose order
// depends on the threads and the device.
TEST_F(Cli, ShowsMemoryStatesOfTheStepThatIsPlanned) {
  using nlohmann::json;
  for (const char* more : {" --threads 1", " --threads 2", " --threads 2 --device rtx4090",
                           " --threads 2 --clip 0 --stack 'bf16 | checkpoint(every=2)'"}) {
    const std::string step = std::string(" --model char --batch 4 --json") + more;
    const Outcome shown = run("show --memory-states" + step),
                  planned = run("plan --timeline" + step);
    ASSERT_EQ(shown.code, 0) << shown.text;
    ASSERT_EQ(planned.code, 0) << planned.text;
    const json timeline = json::parse(planned.text)["timeline"];
    for (const json& row : json::parse(shown.text)["rows"]) {
      const int64_t place = row["place"];
      int64_t activations = 0, gradients = 0;  // alive between this call and the next
      for (const json& owner : timeline["owners"]) {
        if (owner["from"] > place || owner["to"] <= place) continue;
        if (owner["category"] == "activations") activations += owner["bytes"].get<int64_t>();
        if (owner["category"] == "gradients") gradients += owner["bytes"].get<int64_t>();
      }
      // Some of the gradients are parameters'.
      EXPECT_GE(row["bytes"], activations) << more << " " << row;
      EXPECT_LE(row["bytes"], activations + gradients) << more << " " << row;
    }
  }
  EXPECT_NE(run("show --model char --memory-states --device 4090").text.find("rtx4090"),
            std::string::npos);
}

// Ranks that are threads have the cores together, whatever the mesh is for, in what is planned as
// in what is run.
TEST_F(Cli, SharesCoresAmongRanksThatAreThreads) {
  const std::string sizes =
      " --model char --batch 4 --context 16 --set layers=2 hidden=32 heads=2 --stack ";
  const auto threads = [&](const std::string& flags) {
    const Outcome o = run("plan --json" + sizes + flags);
    EXPECT_EQ(o.code, 0) << o.text;
    const std::string device = nlohmann::json::parse(o.text)["device"];  // "cpu, 8 threads"
    return std::stoi(device.substr(device.rfind(", ") + 2));
  };
  for (const std::string& stack :
       {std::string("'data_parallel(2)'"), std::string("'pipeline(2, parts=2)'")}) {
    const int each = std::max(1, threads("''") / 2);
    EXPECT_EQ(threads(stack), each) << stack;
    EXPECT_EQ(threads(stack + " --measure"), each) << stack;
    EXPECT_EQ(threads(stack + " --compare ''"), each) << stack;
    EXPECT_EQ(threads(stack + " --fit 1GB"), each) << stack;
    EXPECT_EQ(threads(stack + " --threads 2"), 2) << stack;
  }
  // Each step beside another has the threads of its own ranks.
  const auto seconds = [&](const std::string& flags, const char* whose) {
    const auto out = nlohmann::json::parse(run("plan --json" + sizes + flags).text);
    return (*whose ? out[whose] : out)["step_s"].get<double>();
  };
  EXPECT_EQ(seconds("'' --compare 'data_parallel(2)'", "compare"),
            seconds("'data_parallel(2)'", ""));
  EXPECT_EQ(seconds("'data_parallel(2)' --compare ''", "compare"), seconds("''", ""));
}

// A pipeline that is measured on threads: its tables, its pictures, and a schedule that is searched
// with what was measured and then trained by.
TEST_F(Cli, MeasuresAPipeline) {
  const std::string sizes =
      " --model char --batch 4 --context 16 --set layers=2 hidden=32 heads=2 ";
  const std::string stack = " --stack 'pipeline(2, schedule=zb_2p, parts=4)' --threads 1 ";
  Outcome o = run("plan --measure --json" + sizes + stack + "--write-schedule " +
                  at("my.schedule") + " --chart " + at("s.svg"));
  ASSERT_EQ(o.code, 0) << o.text;
  const auto planned = nlohmann::json::parse(o.text);
  const auto& measured = planned["pipeline"]["measured"];
  EXPECT_GT(measured["step_s"], 0);
  EXPECT_GT(measured["measured_step_s"], 0);
  EXPECT_EQ(measured["stages"].size(), 2u);
  EXPECT_EQ(measured["stages"][0]["slots"].size(), 12u);
  for (const auto& rank : planned["measured_ranks"]) {
    EXPECT_EQ(rank["measured_peak_bytes"], rank["peak_bytes"]);
  }
  EXPECT_TRUE(has(read_file(at("s.svg")), ">simulated<"));
  o = run("train --data " + at("text.txt") + sizes + "--threads 1 --ranks 2 --steps 2 --out " +
          at("run") + " --stack 'pipeline(2, schedule=\"" + at("my.schedule") + "\", parts=4)'");
  EXPECT_EQ(o.code, 0) << o.text;

  o = run("profile --steps 1" + sizes + stack + "--out " + at("profiled"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_TRUE(has(o.text, "schedule.svg")) << o.text;
  EXPECT_TRUE(has(o.text, "2 ranks (stage=2) ran as threads")) << o.text;
  EXPECT_TRUE(has(read_file(at("profiled/index.html")), "The schedule, measured and simulated"));
  const auto profile = nlohmann::json::parse(read_file(at("profiled/profile.json")));
  EXPECT_EQ(profile["pipeline"]["measured"]["stages"][1]["slots"].size(), 12u);

  o = run("bench ranks --json --rounds 1 --steps 1" + sizes + stack);
  ASSERT_EQ(o.code, 0) << o.text;
  const auto benched = nlohmann::json::parse(o.text);
  EXPECT_GT(benched["pipeline"]["ratio"], 0);
  int64_t largest = 0;  // stage of all, whichever rank speaks
  for (const auto& stage : planned["pipeline"]["stages"]) {
    largest = std::max<int64_t>(largest, stage["bytes"]);
  }
  EXPECT_EQ(benched["peak_bytes"], largest);

  refused("plan --write-schedule " + at("x.schedule") + sizes, "has no pipeline");
  refused("plan --write-schedule " + at("x") + sizes + stack,
          "wanted a file that ends in .schedule");
  refused("plan --schedule-memory 1GB" + sizes + stack, "goes with --write-schedule");
  refused("plan --schedule-memory much --write-schedule " + at("x.schedule") + sizes + stack,
          "--schedule-memory: wanted a number of bytes");
  refused("plan --schedule-memory 1KB --write-schedule " + at("x.schedule") + sizes + stack,
          "with one part in flight a stage's plan has");
  refused("plan --write-schedule " + at("x.schedule") + sizes + "--stack 'pipeline(2, parts=4)'",
          "has no slots for the weights' gradients");
  refused("bench ranks --chart " + at("x.svg") + sizes, "--chart draws a pipeline's schedule");
  EXPECT_FALSE(std::filesystem::exists(at("x.schedule")));
}

TEST_F(Cli, HelpAndUsage) {
  for (const char* command : {"",
                              "train",
                              "generate",
                              "chat",
                              "eval",
                              "merge",
                              "convert",
                              "quantize",
                              "plan",
                              "profile",
                              "bench",
                              "bench ops",
                              "bench step",
                              "bench sweep",
                              "bench tokens",
                              "verify",
                              "show",
                              "ops",
                              "functors",
                              "tokenizer",
                              "tokenizer train",
                              "tokenizer encode",
                              "tokenizer decode",
                              "tokenizer info",
                              "tokenizer speed"}) {
    const Outcome o = run(std::string(command) + " --help");
    EXPECT_EQ(o.code, 0) << command;
    EXPECT_NE(o.text.find("Example"), std::string::npos) << command << "\n" << o.text;
  }
  const auto usage = [&](const std::string& line, const std::string& said) {
    const Outcome o = run(line);
    EXPECT_EQ(o.code, 2) << line;
    EXPECT_EQ(o.text.substr(0, said.size()), said);
  };
  usage("", "adjoint: wanted a command (train, launch,");
  usage("trian", "adjoint: there is no command 'trian'; did you mean 'train'?\n");
  usage("bench opps", "adjoint bench: there is no command 'opps'; did you mean 'ops'?\n");
  usage("train --modle=char",
        "adjoint train: there is no flag '--modle'; did you mean '--model'?\n");
  usage("train --steps -5 --no-such-flag 3",
        "adjoint train: there is no flag '--no-such-flag'; see adjoint train --help\n");
  usage("plan --stack -fuse --bacth 4",
        "adjoint plan: there is no flag '--bacth'; did you mean '--batch'?\n");
  usage("generate", "adjoint generate: --model is required; see adjoint generate --help\n");
}

TEST_F(Cli, HelpNamesTheSectionsThatSpeakOfAWord) {
  const Outcome o = run("help feed_forward");
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("these sections speak of it: "), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("selectors, "), std::string::npos) << o.text;
  // Words, not parts of words.
  EXPECT_EQ(run("help feed_for").text.find("speak of it"), std::string::npos);
}

// A run and a plan tell of a rule without effect, which a functor of several rules may have.
TEST_F(Cli, TellsOfRulesThatFindNothing) {
  write("two.functor",
        "functor two:\n  law approximating\n  object trained, vector -> rate 2\n"
        "  object trained, of router -> decay 0\n");
  const std::string told = at("two.functor") + ":4: this rule finds nothing here";
  for (const std::string& command :
       {small_run("run"), std::string("plan --model char --batch 2"),
        std::string("verify --seeds 1 --model char --set layers=2 hidden=32 heads=2")}) {
    const Outcome o = run(command + " --stack " + at("two.functor"));
    EXPECT_EQ(o.code, 0) << o.text;
    EXPECT_NE(o.text.find(told), std::string::npos) << o.text;
  }
}

TEST_F(Cli, TokenizersAreLearnedAndLookedAt) {
  const std::string of = " --tokenizer " + at("t.json");
  Outcome o =
      run("tokenizer train --data " + at("text.txt") + " --vocab 280 --out " + at("t.json"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("280 tokens of "), std::string::npos) << o.text;
  o = run("tokenizer encode" + of + " --text \"a line of text\"");
  ASSERT_EQ(o.code, 0) << o.text;
  const std::string ids = o.text.substr(0, o.text.find('\n'));
  EXPECT_LT(std::count(ids.begin(), ids.end(), ' '), 5) << "these are frequent words: " << ids;
  EXPECT_EQ(run("tokenizer decode" + of + " --text \"" + ids + "\"").text, "a line of text");
  write("lines.json", "\"<|endoftext|>\"\n\"\\u00e9 \"\n");
  o = run("tokenizer encode --json --specials" + of + " " + at("lines.json"));
  EXPECT_EQ(o.text.substr(0, 4), "[0]\n") << o.text;
  write("ids.json", o.text);
  EXPECT_EQ(run("tokenizer decode --json" + of + " " + at("ids.json")).text,
            "\"<|endoftext|>\"\n\"\xC3\xA9 \"\n");
  const auto info = nlohmann::json::parse(run("tokenizer info --json" + of).text);
  EXPECT_EQ(info["vocab"], 280);
  EXPECT_EQ(info["end_of_text"], 0);
  refused("tokenizer decode" + of + " --text 280", "found '280'");
  refused("tokenizer info --tokenizer " + at("nowhere"), "nowhere");
  refused("tokenizer info --tokenizer " + at("."), "this folder has no tokenizer");
  refused("tokenizer train --vocab 300 --out x --pattern gpt3 --data " + at("text.txt"),
          "did you mean 'gpt2'?");
  refused("tokenizer encode --json" + of + " " + at("text.txt"), "line 1: wanted a text as JSON");
}

TEST_F(Cli, EvalTellsOfTextsAndQuestions) {
  ASSERT_EQ(run(small_run("run")).code, 0);
  const std::string eval = "eval --model " + at("run");
  Outcome o = run(eval);
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(o.text.find("step 4: loss "), 0u) << o.text;
  EXPECT_NE(o.text.find(" bits per byte, of "), std::string::npos) << o.text;
  const std::string lines = write("more/lines.jsonl", "{\"text\": \"a line of text 3\"}\n");
  const std::string choices =
      write("choices.jsonl", R"({"prompt": "a line", "choices": [" of", " 99"], "answer": " of"})");
  const std::string data = " --data " + at("text.txt") + " --data " + at("more");
  o = run(eval + data + " --stride 3 --choices " + choices);
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(o.text.find(at("text.txt") + ": loss "), 0u) << o.text;
  EXPECT_NE(o.text.find("\n" + at("more") + ": loss "), std::string::npos) << o.text;
  EXPECT_NE(o.text.find(", of 15 tokens (16 bytes)\n"), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("\nstep 4: loss "), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("\nstep 4: accuracy "), std::string::npos) << o.text;

  o = run(eval + data + " --by file --json --choices " + choices);
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  for (const char* name :
       {"loss", "perplexity", "bits_per_byte", "accuracy", "accuracy_normalized"}) {
    EXPECT_TRUE(json[name].is_number()) << name << ": " << o.text;
  }
  EXPECT_EQ(json["step"], 4);
  EXPECT_EQ(json["questions"], 1);
  ASSERT_EQ(json["sources"].size(), 2u);
  EXPECT_EQ(json["sources"][1]["source"], lines);
  EXPECT_EQ(json["sources"][1]["tokens"], 15);
  EXPECT_EQ(json["sources"][1]["bytes"], 16);
  EXPECT_EQ(json["tokens"].get<int64_t>(), json["sources"][0]["tokens"].get<int64_t>() + 15);

  refused(eval + " --by line --data x", "--by: wanted source or file, found 'line'");
  refused(eval + " --stride 2", "wanted --data PATH beside them");
  refused(eval + " --data " + at("nowhere"), "there is no such file");
  refused(eval + " --choices " + write("bad.jsonl", "{\"prompt\": 3}\n"),
          "bad.jsonl: line 1: wanted a text as \"prompt\", found number");
  refused(eval + " --choices " + at("nowhere"), "nowhere");
}

TEST_F(Cli, PlanSaysWhoseTheMemoryIs) {
  const std::string plan = "plan --model char --batch 2 --context 16 --set layers=2 hidden=32 ";
  for (const char* by : {"category", "block", "tensor"}) {
    const Outcome o = run(plan + "--json --by " + by);
    ASSERT_EQ(o.code, 0) << o.text;
    const auto json = nlohmann::json::parse(o.text);
    int64_t sum = 0;
    for (const auto& row : json["by"]) sum += row["bytes"].get<int64_t>();
    EXPECT_EQ(sum, json["live_bytes"]) << by;
    EXPECT_EQ(sum + json["categories"]["gaps"].get<int64_t>(), json["peak_bytes"]) << by;
    EXPECT_NE(json["peak_at"]["words"].get<std::string>().find(", call "), std::string::npos);
  }
  const Outcome o = run(plan + "--by tensor --top 3");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find(" more, each "), std::string::npos) << o.text;
  EXPECT_EQ(run(plan + "--by tensor --top 0").text.find(" more, each "), std::string::npos);
}

// A functor that is on by default for a GPU alone runs on a CPU where it is named.
TEST_F(Cli, PlanAppliesAGpusFunctorWhereItIsNamed) {
  const Outcome o = run("plan --model char --batch 2 --stack fuse_loss");
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("fuse_loss         exact                 1"), std::string::npos) << o.text;
  EXPECT_EQ(o.text.find("gang_casts"), std::string::npos) << "nobody named it\n" << o.text;
}

TEST_F(Cli, PlanSaysWhatDoesNotFitTheDevice) {
  const std::string on_l4 = "plan --model gpt2 --stack bf16 --device l4 --batch ";
  EXPECT_EQ(run(on_l4 + "8").text.find("does not fit"), std::string::npos);
  const Outcome o = run(on_l4 + "512");
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("does not fit       the device has "), std::string::npos) << o.text;
  EXPECT_EQ(nlohmann::json::parse(run(on_l4 + "512 --json").text)["fits"], false);
}

// A device without a link has one memory: what lies in the host's tier is in it as well.
TEST_F(Cli, PlanCountsBothTiersWhereTheyAreOneMemory) {
  const std::string plan =
      "plan --json --model char --batch 2 --context 16 --threads 1 --stack 'offload(optimizer)'";
  const auto planned = [&](const std::string& more) {
    const Outcome o = run(plan + more);
    EXPECT_EQ(o.code, 0) << o.text;
    return nlohmann::json::parse(o.text);
  };
  const auto here = planned("");
  const int64_t device = here["peak_bytes"], both = device + here["host_peak_bytes"].get<int64_t>();
  ASSERT_GT(both, device + 1000);
  const auto fits = [&](int64_t memory, const std::string& link) {
    write_file_atomically(at("own.device"),
                          "memory = \"" + std::to_string(memory) +
                              "\"\nper_core = " + (link.empty() ? "true" : "false") + "\n" + link +
                              "arithmetic = 1e9\nbandwidth = 1e9\n[products]\nf32 = 1e9\n");
    return planned(" --device " + at("own.device"))["fits"].get<bool>();
  };
  EXPECT_TRUE(fits(both, ""));
  EXPECT_FALSE(fits(both - 1, "")) << "both tiers are one memory";
  EXPECT_FALSE(fits(device, ""));
  fits(both, "link = 1e9\n");
  const int64_t apart = planned(" --device " + at("own.device"))["peak_bytes"];
  EXPECT_TRUE(fits(apart, "link = 1e9\n")) << "the host's tier is another memory";
}

TEST_F(Cli, FitIsCutOffAfterItsSeconds) {
  const std::string plan =
      "plan --json --model char --batch 2 --context 16 --threads 1 --fit 100MB";
  const auto fit = [&](const std::string& more) {
    const Outcome o = run(plan + more);
    EXPECT_EQ(o.code, 0) << o.text;
    return nlohmann::json::parse(o.text)["fit"];
  };
  const auto whole = fit(" --fit-seconds 0"), cut = fit(" --fit-seconds 1e-9");
  EXPECT_EQ(whole["budget_bytes"], 100'000'000);
  EXPECT_FALSE(whole["cut_off"]);
  EXPECT_TRUE(cut["cut_off"]);
  EXPECT_EQ(cut["plans"], 1) << "there is something to answer with";
  EXPECT_GE(whole["plans"], cut["plans"]);
  const Outcome o =
      run("plan --model char --batch 2 --context 16 --threads 1 --fit 100MB --fit-seconds 1e-9");
  EXPECT_NE(o.text.find("cut off            the search was cut off after 1e-09 s"),
            std::string::npos)
      << o.text;
}

TEST_F(Cli, PlanDrawsAndComparesAndTraces) {
  const std::string plan = "plan --model char --batch 2 --context 16 --set layers=2 hidden=32 ";
  Outcome o = run(plan + "--compare 'checkpoint(block)' --chart " + at("m.svg") + " --trace " +
                  at("t.json"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("B: checkpoint(block)"), std::string::npos) << o.text;
  const std::string chart = read_file(at("m.svg"));
  EXPECT_EQ(chart.rfind("<svg", 0), 0u);
  EXPECT_NE(chart.find(o.text.substr(0, o.text.find('\n'))), std::string::npos) << "one title";
  EXPECT_NE(chart.find("A: plain"), std::string::npos);
  EXPECT_NE(chart.find("B: checkpoint(block)"), std::string::npos);
  EXPECT_GT(nlohmann::json::parse(read_file(at("t.json")))["traceEvents"].size(), 100u);
  o = run(plan + "--stack bf16 --compare '' --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["compare"]["stack"], "");
  EXPECT_NE(json["compare"]["peak_bytes"], json["peak_bytes"]);
}

TEST_F(Cli, PlanTellsTheTimelineOfTheStepThatItPredicts) {
  const std::string plan =
      "plan --model char --batch 16 --context 16 --set layers=2 hidden=32 --threads 1 --timeline "
      "--json ";
  for (const std::string stack :
       {"", "offload(activations)", "offload(optimizer)", "data_parallel(2)", "accumulate(4)",
        "accumulate(16)", "accumulate(16) | offload(parameters)"}) {
    for (const std::string device : {"cpu", "h200"}) {
      SCOPED_TRACE(stack + " on " + device);
      const Outcome o = run(plan + "--stack '" + stack + "' --device " + device, "", "2>/dev/null");
      ASSERT_EQ(o.code, 0);
      const auto json = nlohmann::json::parse(o.text);
      const auto& timeline = json.at("timeline");
      const double step = json.at("step_s");
      EXPECT_NEAR(timeline.at("step_s"), step, 1e-9 * step);
      const bool folded = timeline.at("body_once");
      EXPECT_EQ(folded, stack.starts_with("accumulate(16)"));
      const double listed = timeline.at("length");
      EXPECT_TRUE(folded ? listed < step : std::abs(listed - step) < 1e-9 * step) << listed;
      double end = 0;
      for (const auto& call : timeline.at("calls")) {
        EXPECT_NEAR(call.at("begins"), end, 1e-9 * step) << call;
        EXPECT_LE(call.at("from"), call.at("to")) << call;
        end = call.at("ends");
      }
      EXPECT_EQ(end, timeline.at("length"));
    }
  }
}

// A stack is set beside the defaults, also beside those that it switches off or names.
TEST_F(Cli, ADifferenceTellsOfDefaultsSwitchedOff) {
  const auto told = [](const std::string& stack) {
    return nlohmann::json::parse(
        run("show --model char --set layers=1 --stack '" + stack + "' --diff --json", "",
            "2>/dev/null")
            .text);
  };
  const nlohmann::json off = told("-fuse"), defaults = told("");
  EXPECT_EQ(off.at("before").at("morphisms"), defaults.at("after").at("morphisms"));
  EXPECT_GT(off.at("after").at("morphisms"), off.at("before").at("morphisms"));
  EXPECT_FALSE(off.at("new").empty());
  EXPECT_EQ(told("fuse").at("before").at("morphisms"), defaults.at("after").at("morphisms"));
  EXPECT_TRUE(told("fuse").at("new").empty());
}

TEST_F(Cli, PlanRefusesBadPicturesBeforeWorking) {
  const std::string plan = "plan --model gpt3-175b --batch 4 ";
  refused(plan + "--by tensors", "--by: wanted category, block or tensor");
  refused(plan + "--by tensor --top -1", "--top: wanted 0 (all) or more, found -1");
  refused(plan + "--top 3", "--by tensor");
  refused(plan + "--chart " + at("m.png"), "ends in .svg");
  refused(plan + "--trace " + at("t.svg"), "ends in .json");
  refused(plan + "--chart " + at("absent/m.svg"), "there is no folder");
  std::filesystem::create_directory(at("folder.svg"));
  refused(plan + "--chart " + at("folder.svg"), "is a folder");
  refused("plan --model char --compare 'chekpoint'", "checkpoint");
  EXPECT_FALSE(std::filesystem::exists(at("m.svg.new")));
}

// One block: batch 2, 8 tokens, 16 wide.
constexpr const char* kSmallBench =
    " --model char --batch 2 --context 8 --set layers=1 hidden=16 heads=2 --steps 3 --threads 1 ";

TEST_F(Cli, BenchesSteps) {
  const Outcome o = run("bench step --json --warmup 1" + std::string(kSmallBench));
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  const double step = json.at("measured_step_s");
  EXPECT_EQ(json.at("measured_steps_s").size(), 3u);
  EXPECT_LE(json.at("fastest_s"), step);
  EXPECT_LE(step, json.at("slowest_s"));
  EXPECT_NEAR(json.at("tokens_per_s").get<double>() * step, 16, 1e-6);
  EXPECT_EQ(json.at("measured_peak_bytes"), json.at("peak_bytes"));
  EXPECT_GT(json.at("peak_resident_bytes"), json.at("measured_peak_bytes"));
  EXPECT_GT(json.at("model_utilization"), 0);
}

// Workspaces of a step that is no toy: used in part, and counted whole.
TEST_F(Cli, BenchesTheBytesThatWerePlanned) {
  const Outcome o =
      run("bench step --json --model char --batch 4 --steps 1 --warmup 1 --threads 2");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["measured_peak_bytes"], json["peak_bytes"]);
}

TEST_F(Cli, BenchesOps) {
  const Outcome o = run("bench ops --json --filter '^linear.* 48x16,'" + std::string(kSmallBench));
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  ASSERT_EQ(json["calls"].size(), 1u) << o.text;
  const auto& call = json["calls"][0];
  EXPECT_EQ(call["call"], "linear f32 2x8x16, 48x16, 48 -> 2x8x48");
  EXPECT_EQ(call["times"], 1);
  EXPECT_EQ(call["flops"], 2 * (2 * 8) * 16 * 48);
  EXPECT_EQ(call["bytes"], 4 * (2 * 8 * 16 + 48 * 16 + 48 + 2 * 8 * 48));
  for (const char* seconds : {"call_s", "alone_s", "bare_s", "floor_s"}) {
    EXPECT_GT(call[seconds], 0) << seconds;
  }
  EXPECT_EQ(json["products"]["calls"], 1);
  EXPECT_EQ(json["device"], "cpu");
}

TEST_F(Cli, BenchSweeps) {
  const Outcome o =
      run("bench sweep --json --batches 1,2 --contexts 8,16" + std::string(kSmallBench));
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  ASSERT_EQ(json["batches"].size(), 2u);
  ASSERT_EQ(json["contexts"].size(), 2u);
  EXPECT_EQ(json.at("batches").at(0).at("seconds_to_first"), 1);
  EXPECT_EQ(json["batches"][1]["batch"], 2);
  // The update is shared by more tokens.
  EXPECT_LT(json.at("batches").at(1).at("flops_to_first"), 1);
  EXPECT_EQ(json["contexts"][1]["batch"], 2);
  EXPECT_EQ(json["contexts"][1]["seq"], 16);
}

TEST_F(Cli, BenchRefuses) {
  const std::string flags = kSmallBench;
  refused("bench ops --filter '('" + flags, "--filter: '(' is no regular expression");
  refused("bench ops --filter nothing" + flags, "--filter: no call of this step is like");
  refused("bench step --model char --steps 0", "--steps: wanted 1 to");
  refused("bench step --model char --warmup -1", "--warmup: wanted 0 to");
  refused("bench step --model charr", "charr");
  refused("bench sweep" + flags, "--batches");
  refused("bench sweep --batches 4,0" + flags, "--batches: wanted numbers of at least 1, found 0");
  EXPECT_EQ(run("bench").code, 2);
  EXPECT_EQ(run("bench sweep --batches 4,x").code, 2);
}

// Where there is no GPU, or no CUDA in the binary: one sentence, before anything is written.
TEST_F(Cli, RefusesAGpuThatIsNotHere) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there may be a GPU";
  const std::string cuda = " --device cuda", small(kSmallBench);
  refused(small_run("run") + cuda, "say --device cpu");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
  refused("profile --model char --out " + at("profile") + cuda, "say --device cpu");
  EXPECT_FALSE(std::filesystem::exists(at("profile")));
  refused("generate --model " + at("run") + cuda, "say --device cpu");
  refused("bench ops" + small + cuda, "say --device cpu");
  refused("bench step" + small + cuda, "say --device cpu");
  refused("bench sweep --batches 1,2" + small + cuda, "say --device cpu");
  refused("verify --model char" + cuda, "say --device cpu");
  for (const std::string& command :
       {"bench ops" + small, "bench step" + small, "generate --model " + at("run")}) {
    refused(command + " --device gpu", "--device: wanted cpu or cuda, found 'gpu'");
  }
}

TEST_F(Cli, TrainsThenGenerates) {
  Outcome o = run(small_run("run") + " --json");
  ASSERT_EQ(o.code, 0) << o.text;
  o = run("generate --model " + at("run") + " --prompt \"a line\" --tokens 20 --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["prompt"], "a line");
  EXPECT_EQ(json["text"].get<std::string>().size(), 20u);
  // The same seed, the same text; another seed, another.
  const std::string again =
      "generate --model " + at("run") + " --prompt \"a line\" --tokens 20 --json";
  EXPECT_EQ(run(again).text, o.text);
  EXPECT_NE(run(again + " --seed 5").text, o.text);
}

TEST_F(Cli, GeneratesManyTexts) {
  ASSERT_EQ(run(small_run("run")).code, 0);
  const std::string generate = "generate --tokens 9 --model " + at("run") + " ";
  write_file_atomically(at("prompts"), "a line\n{\"prompt\": \"line\"}\n");
  Outcome o = run(generate + "--json --samples 2 --batch 3 --prompts " + at("prompts"));
  ASSERT_EQ(o.code, 0) << o.text;
  std::vector<nlohmann::json> texts;
  for (size_t from = 0; from < o.text.size();) {
    const size_t end = o.text.find('\n', from);
    texts.push_back(nlohmann::json::parse(o.text.substr(from, end - from)));
    from = end + 1;
  }
  ASSERT_EQ(texts.size(), 4u);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i]["prompt"], i < 2 ? "a line" : "line");
    EXPECT_EQ(texts[i]["sample"], i % 2);
    EXPECT_EQ(texts[i]["text"].get<std::string>().size(), 9u);
  }
  EXPECT_NE(texts[0]["text"], texts[1]["text"]);
  // The first text of several is the text of one.
  o = run(generate + "--json --prompt 'a line'");
  EXPECT_EQ(nlohmann::json::parse(o.text)["text"], texts[0]["text"]) << o.text;
  o = run(generate + "--prompt 'a line' --times");
  EXPECT_NE(o.text.find("first token after "), std::string::npos) << o.text;
  EXPECT_NE(o.text.find(" tokens/s"), std::string::npos) << o.text;
  // A text ends before a stop.
  const std::string stop = texts[0]["text"].get<std::string>().substr(3, 2);
  o = run(generate + "--json --prompt 'a line' --stop '" + stop + "'");
  EXPECT_LT(nlohmann::json::parse(o.text)["text"].get<std::string>().size(), 9u) << o.text;
  refused(generate + "--prompt a --prompts " + at("prompts"), "wanted one of the two");
  refused(generate + "--top-p 0", "--top-p: wanted above 0, at most 1, found 0");
  refused(generate + "--samples 0", "--samples: wanted 1 or more, found 0");
  write_file_atomically(at("prompts"), "a line\n{\"promt\": 1}\n");
  refused(generate + "--prompts " + at("prompts"), "prompts:2:1: wanted {\"prompt\": \"text\"}");
}

TEST_F(Cli, TalksALineAtATime) {
  ASSERT_EQ(run(small_run("run")).code, 0);
  const std::string form = at("form.template");
  write_file_atomically(form, "user = \"{}\\n\"\nassistant = \"{}\\n{end}\"\n");
  write_file_atomically(at("said"), "a line\nline\n");
  const std::string chat = "chat --tokens 5 --model " + at("run");
  Outcome o = run(chat + " --template " + form + " < " + at("said"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '>'), 3) << o.text;
  refused(chat + " < " + at("said"), "has the mark of none of the templates");
  write_file_atomically(form, "user = \"{}\"\n");
  refused(chat + " --template " + form, "a chat template has a line for 'assistant'");
}

TEST_F(Cli, FineTunesAndMerges) {
  ASSERT_EQ(run(small_run("base")).code, 0);
  Outcome o = run("train --init " + at("base") + " --data " + at("text.txt") +
                  " --steps 4 --batch 2 --lr 0.02 --eval-batches 1 --stack 'lora(rank=2)' --out " +
                  at("tuned"));
  // One block is no chain.
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("no chain of repeated blocks"), std::string::npos) << o.text;
  ASSERT_EQ(run(small_run("base") + " --overwrite --set layers=2").code, 0);
  o = run("train --init " + at("base") + " --data " + at("text.txt") +
          " --steps 4 --batch 2 --lr 0.02 --eval-batches 1 --stack 'lora(rank=2)' --out " +
          at("tuned"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find(" of them trained; "), std::string::npos) << o.text;
  o = run("merge --run " + at("tuned") + " --out " + at("merged"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("merged 8 linear maps (attention_in 2, attention_out 2, feed_forward 4) of "
                        "step 4 into " +
                        at("merged")),
            std::string::npos)
      << o.text;
  const auto text = [&](const std::string& folder) {
    return run("generate --temperature 0 --tokens 20 --prompt 'a line' --model " + at(folder)).text;
  };
  EXPECT_EQ(text("merged"), text("tuned"));
  refused("merge --run " + at("tuned") + " --out " + at("merged"), "already holds a run");
  refused("merge --run " + at("base") + " --out " + at("other"), "nothing to merge");
  EXPECT_EQ(run("merge --run " + at("tuned")).code, 2);
}

TEST_F(Cli, ReadsAndConvertsFoldersOfHuggingFace) {
  const std::string llama = SOURCE_DIR "/tests/huggingface/llama";
  Outcome o = run("plan --seq 8 --json --model " + llama);
  EXPECT_EQ(o.code, 0) << o.text;
  o = run("show --text --model " + llama);
  EXPECT_NE(o.text.find("\npreset llama: base=10000 "), std::string::npos) << o.text;
  o = run("convert " + llama + " " + at("out") + " --dtype f16 --shard 4KB --json");
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(nlohmann::json::parse(o.text)["tensors"], 21);
  EXPECT_EQ(run("plan --seq 8 --model " + at("out")).code, 0);
  refused("convert " + llama + " " + at("out"), "choose a folder that is new or empty");
  refused("convert " + llama + " " + at("other") + " --dtype i8", "wanted f32, bf16 or f16");
  refused("convert " + at("nowhere") + " " + at("other"), "neither a run here");
  refused("convert " + llama + " " + at("other") + " --adapters-only", "there is no run.json here");
  refused("plan --seq 100 --model " + llama, "longer than the model's context, 48");
  refused("generate --model " + llama, "tokenizer.json");
  // A run that began without such a folder has a format if its model's text does.
  ASSERT_EQ(run(small_run("mine")).code, 0);
  EXPECT_EQ(run("generate --seq 4 --tokens 3 --prompt a --model " + at("mine")).code, 0);
  o = run("convert " + at("mine") + " " + at("gpt2"));
  EXPECT_EQ(o.code, 0) << o.text;
  const nlohmann::json config = nlohmann::json::parse(read_file(at("gpt2") + "/config.json"));
  EXPECT_EQ(config["architectures"][0], "GPT2LMHeadModel");
  EXPECT_EQ(config["n_embd"], 16);
  EXPECT_EQ(config["n_positions"], 8);
}

TEST_F(Cli, QuantizesARun) {
  ASSERT_EQ(run(small_run("base") + " --set layers=2").code, 0);
  const std::string quantize = "quantize --run " + at("base") + " --group 8 --out ";
  Outcome o = run(quantize + at("codes"));
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("quantized 8 matrices of step"), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("to int4/8 by gptq into " + at("codes")), std::string::npos) << o.text;
  o = run(quantize + at("rounded") + " --method round --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["matrices"], 8);
  EXPECT_EQ(json["calibrated"], 0);
  EXPECT_GT(json["perplexity"]["before"], 1);
  EXPECT_EQ(run("generate --tokens 5 --model " + at("codes")).code, 0);
  refused(quantize + at("codes"), "already holds a run");
  refused(quantize + at("x") + " --format int5",
          "--format: wanted int8, int4 or nf4, found 'int5'");
  refused(quantize + at("x") + " --per row", "--per: wanted tensor, channel or group");
  refused(quantize + at("x") + " --method best", "--method: wanted gptq or round, found 'best'");
  refused(quantize + at("x") + " --batches 0", "--batches: wanted 1 to 1000000, found 0");
}

TEST_F(Cli, PlanAsJson) {
  const Outcome o = run("plan --model gpt2 --batch 4 --context 128 --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["params"], 124439808 - (1024 - 128) * 768);  // a shorter table of positions
  EXPECT_EQ(json["tokens_per_step"], 512);
  EXPECT_GT(json["flops_per_step"].get<int64_t>(), 6 * 124000000LL * 512);
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["categories"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json["peak_bytes"]);
}

TEST_F(Cli, VerifiesAStack) {
  const std::string small =
      "verify --seeds 1 --model " +
      write("small.scheme",
            "axes layers=2 hidden=16 context=8 vocab=20\n"
            "block x[batch, seq, hidden]:\n"
            "  x = x + dropout(linear(gelu(linear(x, hidden)), hidden), 0.1)\n"
            "model tokens[batch, seq], targets[batch, seq]:\n"
            "  x = block^layers(embed(tokens, vocab))\n"
            "  loss = cross_entropy(linear(x, vocab), targets)\n") +
      " --full --batch 5 ";
  Outcome o = run(small + "--stack \"accumulate(2)\" --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_TRUE(json["ok"]);
  EXPECT_FALSE(json["refused"]);
  EXPECT_EQ(json["law"], "reassociating");
  EXPECT_EQ(json["functors"][0]["name"], "accumulate(n=2)");
  EXPECT_GT(json["functors"][0]["matches"], 0);
  EXPECT_LT(json["max_error"], 1e-5);
  const std::string tensor = json["functors"][0]["tensor"];
  EXPECT_NE(tensor, "");
  o = run(small + "--stack \"accumulate(2)\"");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("is reassociating"), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("nearest to what is allowed: " + tensor + "\n"), std::string::npos)
      << o.text;
  // A pipeline has the bits of parts of the batch on one rank, and not of the step as it comes.
  o = run(small + "--stack \"pipeline(2, parts=4)\"");
  EXPECT_EQ(o.code, 0) << o.text;
  const std::string parts = "accumulate(n=4, tied=apart)";
  EXPECT_NE(o.text.find("exact (not a bit differs from the step with " + parts + ")"),
            std::string::npos)
      << o.text;
  EXPECT_NE(o.text.find("against " + parts + "\n"), std::string::npos) << o.text;
  // Exact claims that are wrong, in a functor of the user's own.
  const std::string own = write("loud.functor",
                                "functor loud:\n  law exact\n"
                                "  morphism y = gelu(x) where inside chain\n    -> 1.001 * y\n");
  o = run(small + "--stack \"accumulate(2) | " + own + "\"");
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("verify: law of loud broken: first at block[0]."), std::string::npos)
      << o.text;

  refused(small + "--stack \"acumulate(2)\"", "did you mean 'accumulate'");
  refused(small + "--stack \"accumulate(9)\"", "at most 5 parts");
  o = run(small + "--stack \"accumulate(9)\" --json");
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(nlohmann::json::parse(o.text)["refused"]);
}

TEST_F(Cli, MeasuredEqualsPredicted) {
  const Outcome o = run("plan --model char --batch 2 --context 16 --measure --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["measured_peak_bytes"], json["peak_bytes"]);
}

// All ranks have one plan, and each touches what it says.
TEST_F(Cli, PlansAndProfilesAStepOfSeveralRanks) {
  const std::string small = " --model char --batch 5 --context 16 --set layers=2 hidden=32 ";
  const std::string mesh = "--stack 'data_parallel(3) | zero(2)' ";
  Outcome o = run("plan" + small + mesh + "--measure --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  EXPECT_EQ(json["mesh"]["ranks"], 3);
  EXPECT_EQ(json["mesh"]["axes"]["data"], 3);
  EXPECT_EQ(json["mesh"]["samples"], 2);
  EXPECT_EQ(json["mesh"]["samples_of_last"], 1);
  EXPECT_GT(json["mesh"]["padding_bytes"], 0);
  for (const auto& sent : json["mesh"]["sent"]) {
    EXPECT_EQ(sent["axis"], "data");
    EXPECT_EQ(sent["bytes"], 4 * sent["elements"].get<int64_t>());
  }
  ASSERT_EQ(json["measured_ranks"].size(), 3u);
  for (const auto& rank : json["measured_ranks"]) {
    EXPECT_EQ(rank["measured_peak_bytes"], json["peak_bytes"]);
    EXPECT_GT(rank["in_collectives_s"], 0);
  }
  o = run("plan" + small + mesh);
  EXPECT_TRUE(has(o.text, "3 ranks (data=3) have one plan")) << o.text;
  EXPECT_TRUE(has(o.text, "the last rank has 1 of the 2 samples")) << o.text;
  o = run("plan" + small + mesh + "--threads 1 --fit 1MiB");  // threads want workspaces
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_TRUE(has(o.text, "within 1.00 MiB on each of 3 ranks")) << o.text;
  o = run("profile" + small + mesh + "--steps 1 --json --out " + at("profile"));
  ASSERT_EQ(o.code, 0) << o.text;
  const auto profile = nlohmann::json::parse(o.text);
  EXPECT_EQ(profile["measured_ranks"].size(), 3u);
  EXPECT_EQ(profile["mesh"]["sent"], json["mesh"]["sent"]);
}

// The readout makes the last stage the largest, and the parts in flight make the first one keep
// most on the host.
TEST_F(Cli, TellsOfTheStageThatHasMostOnTheHost) {
  const Outcome o =
      run("plan --model llama-tiny --batch 8 --context 16 --set layers=2 vocab=3000 --threads 1 "
          "--json --stack "
          "'pipeline(2, parts=4) | offload(activations)'");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  const auto& stages = json["pipeline"]["stages"];
  EXPECT_EQ(json["peak_bytes"], stages[1]["bytes"]);
  EXPECT_GT(stages[0]["host_bytes"], stages[1]["host_bytes"]);
  EXPECT_EQ(json["host_peak_bytes"], stages[0]["host_bytes"]);
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["host_categories"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json["host_peak_bytes"]);
}

TEST_F(Cli, ProfilesAStep) {
  const std::string command =
      "profile --model char --batch 4 --context 16 --set layers=2 hidden=32 --steps 2 --out " +
      at("profile") + " --stack 'accumulate(2) | checkpoint(every=1) | offload(optimizer)'";
  Outcome o = run(command + " --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto json = nlohmann::json::parse(o.text);
  for (const char* key :
       {"peak_bytes", "measured_peak_bytes", "witness_bytes", "step_s", "measured_step_s"}) {
    EXPECT_GT(json[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(json["measured_peak_bytes"], json["peak_bytes"]);
  EXPECT_GT(json["host_peak_bytes"], 0);
  EXPECT_EQ(json["measured_host_peak_bytes"], json["host_peak_bytes"]);
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["categories"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json["peak_bytes"]);
  EXPECT_GT(json["hardware_flops"], json["model_flops"]) << "something is recomputed";
  // The folder says the same, and which step it was.
  const auto saved = nlohmann::json::parse(read_file(folder_ / "profile/profile.json"));
  for (const auto& [key, value] : json.items()) {
    if (key != "command") {
      EXPECT_EQ(saved[key], value) << key;
    }
  }
  EXPECT_EQ(saved["model"], "char");
  EXPECT_EQ(saved["batch"], 4);
  EXPECT_EQ(saved["losses"].size(), 4u);
  EXPECT_GT(saved["calls_s"].size(), 20u);
  const std::string page = read_file(folder_ / "profile/index.html");
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("block[1]"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos) << "nothing is fetched";
  EXPECT_TRUE(nlohmann::json::parse(read_file(folder_ / "profile/trace.json")).is_object());
  // Again over itself, for people.
  o = run(command);
  ASSERT_EQ(o.code, 0) << o.text;
  for (const char* part : {"witness bytes", "library bytes", "ms by op", "ms by block"}) {
    EXPECT_NE(o.text.find(part), std::string::npos) << part << "\n" << o.text;
  }
}

TEST_F(Cli, RefusesToProfileNonsense) {
  const std::string out = " --out " + at("never");
  refused("profile --model char --steps 0" + out, "--steps: wanted 1 to");
  refused("profile --model char --batch 0" + out, "--batch");
  refused("profile --model chra" + out, "char");
  refused("profile --model char --stack nosuch" + out, "nosuch");
  EXPECT_FALSE(std::filesystem::exists(at("never")));
  write("papers/thesis.txt", "years of work");
  refused("profile --model char --out " + at("papers"), "holds something that is no profile");
  refused("profile --model char --out " + at("text.txt"), "found a file");
  write("other/profile.json", "{\"format\": \"adjoint profile 0\"}");
  refused("profile --model char --out " + at("other"), "wanted the format 'adjoint profile 1'");
  refused("profile --model char --out ''", "--out");
  // Far more than any machine has: said at once, before anything is made.
  const Outcome o = run("profile --model gpt2-xl --batch 4096 --set layers=2" + out);
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("of memory, the machine has"), std::string::npos) << o.text;
  EXPECT_FALSE(std::filesystem::exists(at("never")));
}

TEST_F(Cli, RefusesBadSchemes) {
  const auto scheme = [&](const std::string& text) {
    return "plan --model " + write("bad.scheme", text);
  };
  refused(scheme("model tokens[batch, seq]\n  x = tokens\n"), "bad.scheme:1:25: wanted ':'");
  refused(scheme("axes context=8\nmodel tokens[batch, seq]:\n  x = sorcery(tokens)\n"),
          "bad.scheme:3:7: ");
  refused(scheme("axes context=8 hidden=6 heads=4\nmodel tokens[batch, seq], targets[batch, seq]:\n"
                 "  x = embed(tokens, 10)\n  x = attention(linear(x, 3*hidden), heads)\n"
                 "  l = cross_entropy(x, targets)\n"),
          "bad.scheme:4:7: attention: ");
  refused("plan --model gtp2", "gpt2");
  refused("plan --model " + at("absent.scheme"), "absent.scheme");
  refused("plan --model gpt2 --set layrs=3", "layers");
  refused("plan --model gpt2 --set layers=0", "layers");
  refused("plan --model gpt2 --batch 0", "--batch");
  refused("plan --model gpt2 --set seq=4", "--seq");
  refused("plan --model gpt2 --threads 100000", "--threads");
}

TEST_F(Cli, RefusesBadData) {
  const auto train = [&](const std::string& data, const std::string& more = "") {
    return "train --model char --data " + data + " --out " + at("never") + " " + more;
  };
  refused(train(at("absent.txt")), "absent.txt: there is no such file");
  refused(train(write("empty.txt", "")), "empty.txt");
  refused(train(write("binary", std::string("\x7f"
                                            "ELF\0\0\x01",
                                            7))),
          "--tokenizer byte");
  refused(train(at("text.txt"), "--context 100000"), "100000");
  refused(train(at("text.txt"), "--steps 0"), "'steps'");
  EXPECT_EQ(run(train(at("text.txt"), "--lr nan")).code, 2) << "what is no number cannot be read";
  refused("train --model char --out " + at("never"), "--data");
  EXPECT_FALSE(std::filesystem::exists(at("never")));
}

TEST_F(Cli, RefusesModelsThatTheDataDoesNotFit) {
  const auto train = [&](const std::string& text) {
    return "train --model " + write("own.scheme", text) + " --data " + at("text.txt") +
           " --steps 2 --batch 2 --context 8 --out " + at("never");
  };
  const std::string head =
      "axes context=8 hidden=6 words=5\nmodel tokens[batch, seq], targets[batch, seq]";
  refused(train(head + ":\n  x = embed(tokens, words)\n"
                       "  loss = cross_entropy(linear(x, 40), targets)\n"),
          "room for 5 different tokens");
  refused(train(head + ":\n  x = embed(tokens, 40)\n"
                       "  loss = cross_entropy(linear(x, words), targets)\n"),
          "room for 5 different tokens");
  refused(train(head + ", mask[batch, seq]:\n  x = embed(tokens, 40) + embed(mask, 40)\n"
                       "  loss = cross_entropy(linear(x, 40), targets)\n"),
          "'mask' is given by nobody");
}

// Strided views of ids, logits and targets are read where they are.
TEST_F(Cli, ViewsFeedEveryOp) {
  const std::string scheme = write("views.scheme",
                                   "axes context=8 hidden=6\n"
                                   "model tokens[batch, seq], targets[batch, seq]:\n"
                                   "  x = embed(slice(tokens, 2, 4), 40)\n"
                                   "  y = slice(linear(x, 50), 3, 40)\n"
                                   "  loss = cross_entropy(y, slice(targets, 2, 4))\n");
  const Outcome o = run("train --model " + scheme + " --data " + at("text.txt") +
                        " --steps 3 --batch 2 --context 8 --eval-batches 1 --out " + at("views"));
  EXPECT_EQ(o.code, 0) << o.text;
}

TEST_F(Cli, RefusesFoldersThatCannotBeWritten) {
  write("a_file", "in the way");
  refused(small_run("a_file"), "a_file");
  refused(small_run("a_file/below"), "a_file/below");
}

TEST_F(Cli, AFullDiskKeepsTheLastGoodSave) {
  ASSERT_EQ(run(small_run("run") + " --stop-after 2").code, 0);
  const std::string model = read_file(folder_ / "run/model.safetensors");
  // No file may grow past 8 KiB now: a disk that fills up while a save is written.
  const Outcome o = run("train --resume --out " + at("run"), "ulimit -f 8;");
  EXPECT_EQ(o.code, 3) << "the machine's failure: " << o.text;
  EXPECT_NE(o.text.find("cannot be written"), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("the save of step 2 stays"), std::string::npos) << o.text;
  EXPECT_EQ(read_file(folder_ / "run/model.safetensors"), model);
  EXPECT_EQ(run("train --resume --out " + at("run")).code, 0);
}

TEST_F(Cli, OneRunWritesToAFolder) {
  std::filesystem::create_directories(at("run"));
  const int lock = ::open(at("run/.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);  // as a run holds it
  const std::string why = "another run is writing to this folder";
  refused(small_run("run"), why);
  EXPECT_FALSE(std::filesystem::exists(at("run/run.json"))) << "nothing was written";
  ASSERT_EQ(::flock(lock, LOCK_UN), 0);
  ASSERT_EQ(run(small_run("run") + " --stop-after 2").code, 0);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  refused("train --resume --out " + at("run"), why);
  refused(small_run("run") + " --overwrite", why);
  EXPECT_EQ(run("generate --tokens 1 --model " + at("run")).code, 0) << "readers ask nobody";
  ::close(lock);
  EXPECT_EQ(run("train --resume --out " + at("run")).code, 0);
}

TEST_F(Cli, ARunThatDiedBeforeItsFirstSaveIsBegunAgain) {
  const Outcome killed =
      run("train --model char --data " + at("text.txt") +
          " --steps 1000000 --batch 2 --context 8 --save-every 0 --set layers=1 hidden=16 heads=2" +
          " --out " + at("run") + " > /dev/null & p=$!; while kill -0 $p && [ ! -e " +
          at("run/run.json") + " ]; do sleep 0.02; done; kill -9 $p; wait $p; :");
  ASSERT_TRUE(std::filesystem::exists(at("run/run.json"))) << killed.text;
  ASSERT_FALSE(std::filesystem::exists(at("run/model.safetensors")));
  const Outcome o = run(small_run("run"));
  EXPECT_EQ(o.code, 0) << o.text;
  refused(small_run("run"), "already holds a run, at step 4");
  // Files of the same names that no run of ours put there are somebody's.
  write("papers/tokenizer.json", "mine");
  refused(small_run("papers"), "already holds a run, tokenizer.json");
}

TEST_F(Cli, RefusesSettingsThatWouldRuinTheParameters) {
  refused(small_run("never") + " --eps 0",
          "option 'eps': wanted a number from 1e-20 to 1, found 0");
  refused(small_run("never") + " --eps 1e-30", "'eps'");
  refused(small_run("never") + " --beta1 1", "'beta1'");
  refused(small_run("never") + " --beta2 1", "'beta2'");
  refused(small_run("never") + " --lr -1", "'lr'");
  refused(small_run("never") + " --clip -1", "'clip'");
  refused("train --config " + write("nan.toml", "lr = nan\n"), "'lr'");
  refused("train --config " + write("inf.toml", "lr = inf\n"), "'lr'");
  EXPECT_FALSE(std::filesystem::exists(at("never")));
}

// A mean over nothing is none, for people and for programs.
TEST_F(Cli, SaysThatNoTargetsWereCounted) {
  const std::string scheme =
      write("ignoring.scheme",
            "axes context=8 hidden=6\nmodel tokens[batch, seq], targets[batch, seq]:\n"
            "  x = embed(tokens, 4)\n  loss = cross_entropy(linear(x, 4), targets, ignore=0)\n");
  const std::string train = "train --model " + scheme + " --data " +
                            write("a.txt", std::string(400, 'a')) +
                            " --steps 3 --batch 2 --context 8 --log-every 1 --out ";
  Outcome o = run(train + at("people") + " --eval-batches 1");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("loss (no targets counted)  val (no targets counted)"), std::string::npos)
      << o.text;
  EXPECT_EQ(o.text.find("nan"), std::string::npos) << o.text;
  o = run(train + at("programs") + " --eval-batches 0 --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const auto said = nlohmann::json::parse(o.text.substr(o.text.rfind('{')));
  EXPECT_TRUE(said["loss"].is_null() && said["val_loss"].is_null()) << o.text;
  const std::string metrics = read_file(folder_ / "programs/metrics.jsonl");
  const auto line = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_TRUE(line["loss"].is_null()) << metrics;
  EXPECT_EQ(line["grad_norm"], 0);
}

TEST_F(Cli, RefusesSavesThatAreNone) {
  refused("generate --model " + at("nowhere"), "nowhere: there is no such folder");
  refused("train --resume --out " + at("nowhere"), "nowhere: there is no run here");
  ASSERT_EQ(run(small_run("run")).code, 0);
  refused(small_run("run"), "already holds a run, at step 4");
  refused("generate --model " + at("run") + " --prompt \"Zürich\"", "");
  const std::string whole = read_file(folder_ / "run/model.safetensors");
  write("run/model.safetensors", whole.substr(0, whole.size() / 2));
  refused("generate --model " + at("run"), "model.safetensors");
  refused("train --resume --steps 9 --out " + at("run"), "model.safetensors");
}

TEST_F(Cli, CtrlCSavesAndSaysHowToGoOn) {
  const std::string command = "train --model char --data " + at("text.txt") +
                              " --steps 1000000 --batch 2 --context 8 --set layers=1 hidden=16 "
                              "heads=2 --eval-batches 1 --out " +
                              at("run");
  const Outcome o = run(command, "timeout -s INT 2");
  EXPECT_NE(o.text.find("go on with: adjoint train --resume --out " + at("run")), std::string::npos)
      << o.text;
  EXPECT_TRUE(std::filesystem::exists(at("run/model.safetensors")));
}

TEST_F(Cli, TomlIsOverriddenByFlags) {
  const std::string toml =
      write("run.toml", "model = \"char\"\ndata = \"" + at("text.txt") +
                            "\"\nsteps = 3\nbatch = 2\ncontext = 8\nout = \"" + at("run") +
                            "\"\neval_batches = 1\n[set]\nlayers = 1\nhidden = 16\n"
                            "heads = 2\n");
  const Outcome o = run("train --config " + toml + " --steps 2 --json");
  ASSERT_EQ(o.code, 0) << o.text;
  const std::string last = o.text.substr(o.text.rfind('{'));
  EXPECT_EQ(nlohmann::json::parse(last)["step"], 2);
  refused("train --config " + write("bad.toml", "stpes = 3\n"),
          "bad.toml:1: there is no option 'stpes'; did you mean 'steps'?");
}

// Ops, the words of a model's text and optimizers, in both lists.
TEST_F(Cli, ListsWhatModelsAndRunsMayName) {
  const Outcome o = run("ops --json");
  ASSERT_EQ(o.code, 0) << o.text;
  std::map<std::string, std::string> kinds;
  const nlohmann::json answer = nlohmann::json::parse(o.text);
  for (const nlohmann::json& one : answer["ops"]) {
    const std::string kind = one["kind"];
    if (kind == "word" || kind == "optimizer") kinds[one["signature"]] = kind;
  }
  const std::map<std::string, std::string> wanted = {
      {"conv(x, width, init=uniform(0.5), bias=no)", "word"},
      {"param(size, ..., init=zeros)", "word"},
      {"reverse(list)", "word"},
      {"item(list, number)", "word"},
      {"sgd", "optimizer"},
      {"lion(beta1=0.9, beta2=0.99)", "optimizer"}};
  const Outcome text = run("ops");
  for (const auto& [signature, kind] : wanted) {
    EXPECT_EQ(kinds[signature], kind) << signature;
    EXPECT_NE(text.text.find("  " + signature + "\n"), std::string::npos) << signature;
  }
  EXPECT_NE(text.text.find("  linear(x, out"), std::string::npos);
  EXPECT_NE(run("help lion").text.find("optimizer lion("), std::string::npos);
  EXPECT_NE(run("help item").text.find("item(list, number)"), std::string::npos);
}

// Whoever reads a line of what train says and leaves had what he wanted, and the run is saved.
TEST_F(Cli, TrainOutlivesItsReader) {
  const Outcome o = run(small_run("run") + " | head -1; echo ${PIPESTATUS[0]}'", "bash -c '", "");
  EXPECT_TRUE(o.text.ends_with("\n0\n")) << o.text;
  EXPECT_TRUE(std::filesystem::exists(at("run/save.json")));
}

}  // namespace
}  // namespace adjoint
