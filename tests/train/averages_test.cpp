// A moving average of the parameters beside them: what it is after every step, that training does
// not know of it, and that it is saved, resumed and read back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/merge.h"
#include "train/save.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

class Averages : public TrainFolder {
 protected:
  Tensors tensors(const std::string& run, const std::string& file) const {
    const SafetensorsFile saved(out(run) / (file + ".safetensors"));
    Tensors all;
    for (const SafetensorView& t : saved.tensors()) {
      EXPECT_EQ(t.dtype, "F32");
      std::vector<float>& numbers = all[t.name];
      numbers.resize(t.size.count / 4);
      std::memcpy(numbers.data(), t.data, t.size.count);
    }
    return all;
  }
  std::string text(const std::string& run, const std::string& weights) const {
    return Generator(out(run), {.threads = num_threads()}, weights)
        .generate("the cat", {.tokens = 40, .temperature = 0}, nullptr);
  }
};

TEST_F(Averages, TrainingIsWhatItWas) {
  train(options("plain", {{"stack", "checkpoint(block)"}}));
  train(options("ema", {{"stack", "ema | checkpoint(block)"}}));
  EXPECT_EQ(tensors("plain", "model"), tensors("ema", "model"));
  const Tensors plain = tensors("plain", "optimizer"), ema = tensors("ema", "optimizer");
  for (const auto& [name, numbers] : plain) EXPECT_EQ(ema.at(name), numbers) << name;
  EXPECT_EQ(ema.size(), plain.size() + tensors("ema", "model").size() + 1);
  EXPECT_EQ(ema.at("optimizer:ema.steps"), std::vector<float>{7});
}

// The mean of all parameters so far, until the decay forgets the first of them.
TEST_F(Averages, FollowsTheParametersFromTheFirstStepOn) {
  const int steps = 5;
  Tensors wanted;
  for (int taken = 1; taken <= steps; ++taken) {
    const std::string run = "after" + std::to_string(taken);
    train(options(run, {{"stack", "ema(decay=0.6)"}, {"lr", 0.02}, {"stop_after", taken}}));
    const float old = std::min((taken - 1.0f) / static_cast<float>(taken), 0.6f);
    const Tensors averages = tensors(run, "optimizer");
    for (const auto& [name, numbers] : tensors(run, "model")) {
      std::vector<float>& mean = wanted[name];
      mean.resize(numbers.size());
      const std::vector<float>& found = averages.at(name + ":ema.average");
      float off = 0;
      for (size_t i = 0; i < mean.size(); ++i) {
        mean[i] = old * mean[i] + (1 - old) * numbers[i];
        off = std::max(off, std::abs(mean[i] - found[i]));
      }
      EXPECT_LT(off, 1e-6f) << name << " after " << taken;
      if (taken == 1) {
        EXPECT_EQ(found, numbers) << name;
      }
    }
  }
}

TEST_F(Averages, ResumesBitForBit) {
  train(options("whole", {{"stack", "ema(decay=0.9) | accumulate(2)"}}));
  train(options("parts", {{"stack", "ema(decay=0.9) | accumulate(2)"}, {"stop_after", 3}}));
  train(resume("parts"));
  EXPECT_EQ(tensors("whole", "model"), tensors("parts", "model"));
  EXPECT_EQ(tensors("whole", "optimizer"), tensors("parts", "optimizer"));
}

TEST_F(Averages, AreWeightsThatTextIsMadeWith) {
  const json fast = {{"lr", 0.02}, {"schedule", "constant"}};  // so that the last step moves them
  for (const auto& [name, stack] :
       {std::pair("ema", "ema(decay=0.99)"), std::pair("none", "ema(decay=0)")}) {
    json flags = options(name, fast);
    flags["stack"] = stack;
    train(flags);
  }
  EXPECT_EQ(text("none", "ema.average"), text("none", "")) << "an average of the last step alone";
  EXPECT_EQ(text("none", ""), text("ema", ""));
  EXPECT_NE(text("ema", "ema.average"), text("ema", ""));
  // Frozen parameters have no average, and are what they are.
  train(options("some", {{"stack", "ema(decay=0) | freeze(attention)"}}));
  EXPECT_EQ(text("some", "ema.average"), text("some", ""));
  try {
    text("ema", "ema.avrage");
    ADD_FAILURE() << "there is no such state";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              (out("ema") / "optimizer.safetensors").string() +
                  ": no parameter has a state 'ema.avrage' (there are adamw.m, adamw.v, "
                  "ema.average); did you mean 'ema.average'?");
  }
}

TEST_F(Averages, AreWeightsThatAreEvaluated) {
  const auto loss = [&](const std::string& run, const std::string& weights) {
    return evaluate(out(run), {.weights = weights}, {.threads = num_threads()}).text->loss;
  };
  const json whole = {{"lr", 0.02}, {"eval_batches", 0}};
  json flags = options("ema", whole);
  flags["stack"] = "ema(decay=0.99)";
  const auto trained = train(flags).val_loss;
  EXPECT_EQ(loss("ema", ""), trained);
  EXPECT_GT(std::abs(loss("ema", "ema.average") - loss("ema", "")), 1e-4);
  EXPECT_GT(
      std::abs(
          evaluate(out("ema"), {.data = {data().string()}}, {.threads = num_threads()}).text->loss -
          loss("ema", "")),
      1e-6)
      << "all of the text, and not its last part";
  EXPECT_THROW(loss("ema", "ema.avrage"), Error);
  EXPECT_THROW(loss("none", ""), Error);
}

// The plain model of averages is what the run is with them.
TEST_F(Averages, AreWeightsThatAreMerged) {
  train(options("base"));
  train(tuned("lora", "lora(rank=2) | ema(decay=0.5)"));
  train(options("plain", {{"stack", "ema(decay=0.5)"}, {"lr", 0.02}}));
  const auto loss = [&](const std::string& run, const std::string& weights) {
    return evaluate(out(run), {.weights = weights}, {.threads = num_threads()}).text->loss;
  };
  for (const std::string run : {"lora", "plain"}) {
    const MergeResult merged = merge_run(out(run), out(run + "_merged"), "ema.average");
    EXPECT_EQ(merged.merged.empty(), run == "plain");
    const double average = loss(run, "ema.average");
    EXPECT_NEAR(loss(run + "_merged", ""), average, 1e-5) << run;
    EXPECT_GT(std::abs(loss(run, "") - average), 1e-4) << run;
    EXPECT_EQ(read_json(out(run + "_merged") / "run.json")["merged"]["weights"], "ema.average");
  }
  const Tensors averages = tensors("plain", "optimizer");
  for (const auto& [name, numbers] : tensors("plain_merged", "model")) {
    EXPECT_EQ(averages.at(name + ":ema.average"), numbers) << name;
  }
  EXPECT_THROW(merge_run(out("plain"), out("not"), "ema.avrage"), Error);
  EXPECT_THROW(merge_run(out("plain"), out("not")), Error) << "nothing to merge";
}

}  // namespace
}  // namespace adjoint
