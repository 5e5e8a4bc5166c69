// Saves beside the one that a run goes on from, and what ends a run early.
#include "train/side_saves.h"

#include <fstream>

#include "base/json.h"
#include "device/parallel.h"
#include "train/generate.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

int64_t step_of(const fs::path& folder) { return SavedModel(SavePaths(folder)).step(); }

TEST_F(TrainFolder, KeepsTheLastSaves) {
  const json kept = {{"save_every", 2}, {"keep", 2}};
  train(options("run", kept));
  EXPECT_FALSE(fs::exists(out("run") / "step-2") || fs::exists(out("run") / "step-4"));
  EXPECT_EQ(step_of(out("run") / "step-6"), 6);
  EXPECT_EQ(step_of(out("run") / "step-7"), 7);
  EXPECT_EQ(read_file(out("run") / "step-7" / "model.safetensors"),
            read_file(out("run") / "model.safetensors"));
  // Each goes on as the run itself would have.
  train(resume("run/step-6"));
  EXPECT_EQ(read_file(out("run") / "step-6" / "model.safetensors"),
            read_file(out("run") / "model.safetensors"));
  Generator(out("run") / "step-7", {.threads = num_threads()})
      .generate("the", {.tokens = 2, .temperature = 0}, nullptr);
  json plain = options("run", {{"overwrite", true}, {"save_every", 0}});
  train(plain);
  EXPECT_FALSE(fs::exists(out("run") / "step-7")) << "it was another run's";
}

// With a rate that ruins what was learned the best save is an early one.
TEST_F(TrainFolder, KeepsTheBestSaveAndEndsWithoutProgress) {
  const json run = {{"steps", 40},  {"eval_every", 2},   {"lr", 3.0},     {"min_lr", 3.0},
                    {"warmup", 20}, {"keep_best", true}, {"patience", 3}, {"eval_batches", 5}};
  const TrainResult result = train(options("run", run));
  ASSERT_LT(result.step, 40) << "it ended early";
  EXPECT_NE(result.ended_by.find("no lower validation loss in 3 evaluations"), std::string::npos);
  const BestLoss best = best_loss_in(out("run") / "metrics.jsonl");
  EXPECT_EQ(best.evaluations_since, 3);
  EXPECT_EQ(step_of(out("run") / "best"), result.step - 6);
  EXPECT_EQ(step_of(out("run")), result.step);
  // Who goes on remembers: the next evaluation is the fourth.
  const TrainResult again = train(resume("run"));
  EXPECT_EQ(again.step, result.step + 2);
}

// A run that is stopped where no evaluation is due decides as one that is not.
TEST_F(TrainFolder, EvaluationsOfAStopDecideNothing) {
  const json run = {{"steps", 40},  {"eval_every", 4},   {"lr", 3.0},     {"min_lr", 3.0},
                    {"warmup", 20}, {"keep_best", true}, {"patience", 3}, {"eval_batches", 5}};
  const TrainResult whole = train(options("whole", run));
  ASSERT_LT(whole.step, 40) << "it ended early";
  json first = run;
  first["stop_after"] = 1;
  train(options("run", first));
  TrainResult last;
  for (int64_t stop = 2; stop <= 40 && last.ended_by.empty(); ++stop) {
    last = train(resume("run", {{"stop_after", stop}}));
  }
  EXPECT_EQ(last.step, whole.step);
  EXPECT_EQ(last.ended_by, whole.ended_by);
  EXPECT_EQ(step_of(out("run") / "best"), step_of(out("whole") / "best"));
}

TEST_F(TrainFolder, StopsWhenTheTimeIsOver) {
  const TrainResult result = train(options("run", {{"max_minutes", 1e-9}}));
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(result.ended_by, "1e-09 minutes are over");
  EXPECT_EQ(train(resume("run")).step, 7) << "the next command has its own time";
}

// Any loss is above a fifth of the mean, so the first that can be told is taken for a spike.
TEST_F(TrainFolder, ASpikeIsToldWithItsSamples) {
  const json run = {{"steps", 200},     {"lr", 0.02},      {"spike", 0.2},
                    {"log_every", 200}, {"eval_every", 0}, {"warmup", 0}};
  const std::string error = error_of(options("run", run));
  EXPECT_NE(error.find("at step 11 the loss is "), std::string::npos) << error;
  EXPECT_NE(error.find("spike.json (" + data().string() + "); saved what there is"),
            std::string::npos)
      << error;
  const json told = read_json(out("run") / "spike.json");
  EXPECT_EQ(told["step"], 11);
  ASSERT_EQ(told["samples"].size(), 2);
  const std::string text = read_file(data());
  for (const json& sample : told["samples"]) {
    EXPECT_EQ(sample["text"], text.substr(sample["sample"].get<size_t>(), 16));
  }
  EXPECT_EQ(step_of(out("run")), 11);
}

}  // namespace
}  // namespace adjoint
