// A run that goes on otherwise than it began: another stack, another optimizer, samples or batches
// of another size. What can be kept is kept, and the rest is named.
#include <fstream>

#include "base/json.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/generate.h"
#include "train/take_over.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class ResumeOtherwise : public TrainFolder {
 protected:
  // What the resumed run says, and its parameters and state as it begins, by name.
  struct Begun {
    int64_t step;
    std::string notes;
    std::map<std::string, std::vector<double>> values;
  };
  static Begun begin(const json& flags) {
    const Trainer trainer(resolve_config({}, flags));
    Begun begun{.step = trainer.first_step(), .notes = {}, .values = {}};
    for (const std::string& note : trainer.notes()) begun.notes += note + "\n";
    const Scheme& scheme = trainer.run().scheme();
    for (const Value v : scheme.inputs) {
      const bool held = scheme[v].role == Role::kParameter || scheme[v].role == Role::kState;
      if (held) begun.values[to_string(scheme[v].source)] = trainer.run().values(v);
    }
    return begun;
  }
  // A copy of a run's folder, to go on with in several ways.
  void copy(const std::string& from, const std::string& to) const {
    fs::remove_all(out(to));
    fs::copy(out(from), out(to), fs::copy_options::recursive);
  }
  void expect_numbers_of(const std::string& name, const Begun& begun, const std::string& part,
                         const char* file) const {
    const SafetensorsFile saved(out(name) / file);
    int seen = 0;
    for (const SafetensorView& t : saved.tensors()) {
      if (t.name.find(part) == std::string::npos || t.dtype != "F32") continue;
      const auto found = begun.values.find(t.name);
      ASSERT_TRUE(found != begun.values.end()) << t.name;
      const auto* const numbers = static_cast<const float*>(t.data);
      for (size_t i = 0; i < found->second.size(); ++i) {
        ASSERT_EQ(found->second[i], numbers[i]) << t.name;
      }
      ++seen;
    }
    EXPECT_GT(seen, 0) << part;
  }
};

TEST_F(ResumeOtherwise, UnderAnExactStackItIsTheSameRun) {
  const TrainResult whole = train(options("whole"));
  train(options("parts", {{"stop_after", 3}}));
  const json other = {{"stack", "checkpoint(every=1) | offload(optimizer)"}};
  copy("parts", "begun");
  EXPECT_EQ(begin(resume("begun", other)).notes, "") << "nothing is lost";
  EXPECT_EQ(train(resume("parts", other)).loss, whole.loss);
  EXPECT_EQ(read_file(out("whole") / "model.safetensors"),
            read_file(out("parts") / "model.safetensors"));
}

TEST_F(ResumeOtherwise, AnotherOptimizerBeginsItsState) {
  train(options("run", {{"stop_after", 3}}));
  copy("run", "begun");
  const Begun momentum = begin(resume("begun", {{"optimizer", "momentum"}}));
  EXPECT_EQ(momentum.step, 3);
  EXPECT_NE(momentum.notes.find("was dropped, because this run has no such thing: adamw.m of "),
            std::string::npos)
      << momentum.notes;
  EXPECT_NE(momentum.notes.find("begin anew, because the save has no such thing: momentum."),
            std::string::npos)
      << momentum.notes;
  expect_numbers_of("run", momentum, "", "model.safetensors");
  // A state that is held in codes begins anew, beside those of vectors, which stay; other widths
  // are the same numbers, rounded.
  copy("run", "begun");
  const Begun narrow = begin(resume("begun", {{"stack", "moments"}}));
  EXPECT_NE(narrow.notes.find("begin anew, because the save has no such thing: adamw.m.codes of "),
            std::string::npos)
      << narrow.notes;
  EXPECT_EQ(narrow.values.at("optimizer:adamw.steps"), std::vector<double>{3});
  copy("run", "begun");
  const Begun half = begin(resume("begun", {{"stack", "moments(bf16)"}}));
  EXPECT_EQ(half.notes, "");
  const std::vector<double>& moments = half.values.at("wte.weight:adamw.m");
  EXPECT_TRUE(std::any_of(moments.begin(), moments.end(), [](double m) { return m != 0; }));
  // Beside what is new, the old state stays.
  copy("run", "begun");
  const Begun average = begin(resume("begun", {{"stack", "ema"}, {"spike", 3.0}}));
  EXPECT_EQ(average.notes.find("dropped"), std::string::npos) << average.notes;
  EXPECT_NE(average.notes.find("ema.average of "), std::string::npos) << average.notes;
  EXPECT_NE(average.notes.find("watch.losses"), std::string::npos) << average.notes;
  EXPECT_EQ(average.values.at("optimizer:adamw.steps"), std::vector<double>{3});
  expect_numbers_of("run", average, "adamw.", "optimizer.safetensors");
  EXPECT_EQ(train(resume("begun", {{"stack", "ema"}, {"spike", 3.0}})).step, 7);
}

// Whoever dies between the new options and the save that they are of is resumed like before.
TEST_F(ResumeOtherwise, SurvivesBeingKilledInBetween) {
  train(options("run", {{"stop_after", 3}}));
  const std::string save = read_file(out("run") / "model.safetensors");
  const json before = json::parse(read_file(out("run") / "run.json"))["options"];
  copy("run", "killed");
  begin(resume("killed", {{"stack", "lora(rank=2)"}}));
  EXPECT_NE(read_file(out("killed") / "model.safetensors"), save) << "it is saved at once";
  json about = json::parse(read_file(out("killed") / "run.json"));
  EXPECT_FALSE(about.contains("before"));
  const TrainResult whole = train(resume("killed"));
  // Killed behind the save, and before it.
  for (const bool saved : {true, false}) {
    copy("run", "killed");
    if (saved) begin(resume("killed", {{"stack", "lora(rank=2)"}}));
    about["before"] = before;
    write_file_atomically(out("killed") / "run.json", about.dump());
    EXPECT_EQ(train(resume("killed")).loss, whole.loss) << saved;
    EXPECT_FALSE(json::parse(read_file(out("killed") / "run.json")).contains("before"));
  }
}

TEST_F(ResumeOtherwise, AdaptersComeAndGo) {
  train(options("run", {{"stop_after", 3}}));
  copy("run", "lora");
  const json lora = {{"stack", "lora(rank=2)"}};
  const Begun with = begin(resume("lora", lora));
  EXPECT_NE(with.notes.find("block[].qkv.lora_a.weight of 2 tensors"), std::string::npos)
      << with.notes;
  EXPECT_EQ(train(resume("lora", lora)).step, 7);
  const Begun without = begin(resume("lora", {{"stack", ""}, {"steps", 9}}));
  EXPECT_NE(without.notes.find("dropped, because this run has no such thing: "), std::string::npos);
  EXPECT_NE(without.notes.find("block[].qkv.lora_a.weight of 2 tensors"), std::string::npos)
      << without.notes;
}

// Codes become the numbers that they stand for, and stay codes where both have them.
TEST_F(ResumeOtherwise, CodesAreDecoded) {
  train(options("base", {{"steps", 2}}));
  train(tuned("codes", "quantize(int8, group=32) | lora(rank=2)", {{"stop_after", 3}}));
  copy("codes", "same");
  const Begun same =
      begin(resume("same", {{"stack", "quantize(int8, group=32) | lora(rank=2) | bf16"}}));
  EXPECT_EQ(same.notes, "");
  copy("codes", "plain");
  const Begun plain = begin(resume("plain", {{"stack", "lora(rank=2)"}}));
  EXPECT_EQ(plain.notes, "") << "nothing is lost";
  const auto codes = same.values.at("block[0].qkv.weight:codes");
  const auto decoded = plain.values.at("block[0].qkv.weight");
  ASSERT_EQ(codes.size(), decoded.size());
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i] == 0, decoded[i] == 0);
}

TEST_F(ResumeOtherwise, BatchesOfAnotherSizeGoOnWithTheNextSample) {
  const json windows = {{"packing", "windows"}, {"stop_after", 3}};
  train(options("run", windows));
  const Begun begun = begin(resume("run", {{"batch", 5}}));
  EXPECT_NE(begun.notes.find("batches have 5 samples from step 3 on, before 2: the run goes on at "
                             "sample 6"),
            std::string::npos)
      << begun.notes;
  EXPECT_EQ(train(resume("run")).step, 7) << "it keeps the size";
  EXPECT_EQ(json::parse(read_file(out("run") / "run.json"))["options"]["batch"], 5);
  const json position = read_json(out("run") / "position.json");
  EXPECT_EQ(position["sizes"], json::parse(R"([{"batch": 3, "sample": 6}])")) << position;
  std::ifstream lines(out("run") / "metrics.jsonl");
  json last;
  for (std::string line; std::getline(lines, line);) last = json::parse(line);
  const auto rows = static_cast<double>((read_file(data()).size() * 9 / 10 - 1) / 16);
  EXPECT_NEAR(last["epoch"].get<double>(), (3 * 2 + 4 * 5) / rows, 1e-9);
  // Of two epochs in batches of 2, what is left is read in batches of 5.
  json epochs = options("epochs", {{"packing", "windows"}, {"epochs", 2.0}, {"stop_after", 3}});
  epochs.erase("steps");
  train(epochs);
  const Trainer rest(resolve_config({}, resume("epochs", {{"batch", 5}})));
  EXPECT_EQ(rest.config().steps, 3 + std::llround((2 * rows - 6) / 5));
}

TEST_F(ResumeOtherwise, SamplesOfAnotherLengthWhereTheirOrderStays) {
  train(options("crops", {{"stop_after", 3}}));
  const Begun begun = begin(resume("crops", {{"seq", 8}}));
  EXPECT_NE(begun.notes.find("samples have 8 tokens from step 3 on, before 16"), std::string::npos);
  // Before the next save and behind it, everybody knows the run.
  const auto generates = [&] {
    Generator(out("crops"), {.threads = num_threads()})
        .generate("the", {.tokens = 2, .temperature = 0}, nullptr);
  };
  generates();
  EXPECT_EQ(train(resume("crops")).step, 7);
  generates();
  train(options("windows", {{"stop_after", 3}, {"packing", "windows"}}));
  EXPECT_EQ(error_of(resume("windows", {{"seq", 8}})),
            "samples have 8 tokens, and before step 3 they had 16: which of these rows the run has "
            "read is not known; go on with --seq 16, or begin a run with --init " +
                out("windows").string());
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += "{\"text\": \"mat " + std::to_string(i % 10) + "\"}\n";
  write_file_atomically(folder_ / "short.jsonl", lines);
  const json padded = {{"packing", "padded"}, {"data", (folder_ / "short.jsonl").string()}};
  json begins = padded;
  begins["stop_after"] = 3;
  train(options("padded", begins));
  EXPECT_EQ(train(resume("padded", {{"seq", 12}})).step, 7) << "no document is cut";
}

TEST_F(ResumeOtherwise, AnotherContextWhereNoTableHasARowForEachPosition) {
  train(options("learned", {{"stop_after", 3}}));
  const std::string error = error_of(resume("learned", {{"context", 32}}));
  EXPECT_NE(
      error.find("--context 32: 'wpe.weight' has 16 rows, one for each position of this run's "
                 "context, and would have 32"),
      std::string::npos)
      << error;
  const json rotary = {{"model", "llama-tiny"}, {"set", json::object()}, {"stop_after", 3}};
  train(options("rotary", rotary));
  EXPECT_EQ(train(resume("rotary", {{"context", 32}})).step, 7);
  EXPECT_EQ(json::parse(read_file(out("rotary") / "run.json"))["options"]["context"], 32);
  EXPECT_EQ(train(resume("rotary", {{"steps", 9}})).step, 9);
}

}  // namespace
}  // namespace adjoint
