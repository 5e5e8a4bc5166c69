// A mask of a parameter that is held from step to step: it is part of the model, so it is saved
// with it, and whoever resumes, evaluates, samples or merges has it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/merge.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;
const std::string kMask = ":sparse24.mask";

class Masks : public TrainFolder {
 protected:
  Tensors tensors(const std::string& run, const std::string& file = "model") const {
    const SafetensorsFile saved(out(run) / (file + ".safetensors"));
    Tensors all;
    for (const SafetensorView& t : saved.tensors()) {
      std::vector<float>& numbers = all[t.name];
      numbers.resize(t.size.count / 4);
      std::memcpy(numbers.data(), t.data, t.size.count);
    }
    return all;
  }
  json masked(const std::string& name, const std::string& stack, json more = json::object()) const {
    json flags = options(name, {{"stack", stack}, {"lr", 0.02}, {"eval_batches", 0}});
    flags.update(more);
    return flags;
  }
  Tensors masks(const std::string& run) const {
    Tensors all = tensors(run);
    std::erase_if(all, [](const auto& t) { return t.first.find(kMask) == std::string::npos; });
    return all;
  }
  double loss(const std::string& run) const {
    return evaluate(out(run), {}, {.threads = num_threads()}).text->loss;
  }
};

TEST_F(Masks, ChooseTheTwoLargestOfFour) {
  train(masked("run", "sparse24(every=2)", {{"stop_after", 3}}));  // chosen after steps 1 and 3
  const Tensors all = tensors("run");
  ASSERT_EQ(masks("run").size(), 8u);
  for (const auto& [name, mask] : masks("run")) {
    const std::vector<float>& w = all.at(name.substr(0, name.size() - kMask.size()));
    for (size_t four = 0; four < w.size(); four += 4) {
      float least = INFINITY, most = 0;  // of those that are used, and of the others
      int used = 0;
      for (size_t i = four; i < four + 4; ++i) {
        used += mask[i] == 1;
        if (mask[i] == 1) least = std::min(least, std::abs(w[i]));
        if (mask[i] == 0) most = std::max(most, std::abs(w[i]));
      }
      ASSERT_EQ(used, 2) << name;
      ASSERT_GE(least, most) << name;
    }
  }
}

TEST_F(Masks, StayWhereTheyAreChosenOnce) {
  train(masked("first", "sparse24(every=once)", {{"stop_after", 1}}));
  train(masked("last", "sparse24(every=once)"));
  EXPECT_EQ(masks("first"), masks("last"));
  train(masked("often", "sparse24(every=1)"));
  EXPECT_NE(masks("first"), masks("often"));
}

TEST_F(Masks, ResumeBitForBit) {
  for (const std::string stack : {"sparse24(every=3)", "sparse24(every=3) | accumulate(2) | bf16",
                                  "sparse24(every=3) | lora(rank=2) | checkpoint(block)"}) {
    SCOPED_TRACE(stack);
    train(masked("whole", stack, {{"overwrite", true}}));
    train(masked("parts", stack, {{"overwrite", true}, {"stop_after", 4}}));
    train(resume("parts"));
    EXPECT_EQ(tensors("whole"), tensors("parts"));
    EXPECT_EQ(tensors("whole", "optimizer"), tensors("parts", "optimizer"));
  }
}

// Masked, by whoever reads the run: the loss is that of the masked model, and merged it is plain.
TEST_F(Masks, AreThereForEvaluationSamplingAndMerge) {
  const auto trained = train(masked("run", "sparse24(every=2)")).val_loss;
  EXPECT_EQ(loss("run"), trained);
  EXPECT_EQ(merge_run(out("run"), out("merged")).merged.size(), 3u);
  EXPECT_NEAR(loss("merged"), loss("run"), 1e-5);
  const auto text = [&](const std::string& run) {
    return Generator(out(run), {.threads = num_threads()})
        .generate("the cat", {.tokens = 20, .temperature = 0}, nullptr);
  };
  EXPECT_EQ(text("merged"), text("run"));
  const Tensors all = tensors("run"), plain = tensors("merged");
  for (const auto& [name, mask] : masks("run")) {
    const std::string weight = name.substr(0, name.size() - kMask.size());
    std::vector<float> wanted = all.at(weight);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] *= mask[i];
    EXPECT_EQ(plain.at(weight), wanted) << weight;
  }
  EXPECT_EQ(plain.size() + 8, all.size());
}

}  // namespace
}  // namespace adjoint
