// The law of what is on by default: the same bits with and without it, parameters, moments, loss
// and norm, over steps of a tiny GPT-2 and a tiny Llama, dropout on, for each number of threads.
// And no plan needs more memory for it.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "run/run.h"
#include "train/bound_model.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kBatch = 3, kSeed = 11;

struct Model {
  const char* preset;
  nlohmann::json settings;
  int64_t context, vocab;
};

std::vector<Model> tiny_models() {
  return {
      {"char",
       {{"layers", 2}, {"hidden", 128}, {"heads", 4}, {"vocab", 37}, {"dropout", 0.1}},
       20,
       37},
      {"llama-tiny", {{"layers", 2}, {"hidden", 128}, {"vocab", 41}, {"dropout", 0.1}}, 20, 41}};
}

Scheme step_of(const Model& model, const std::string& stack, double clip = 1) {
  const ModelSizes sizes{.batch = kBatch, .context = model.context, .settings = model.settings};
  const Scheme forward = BoundModel(find_model(model.preset), sizes).forward();
  return training_step(forward, {.clip = clip, .stack = stack});
}

// Everything that a step leaves behind, by name, as bytes.
std::map<std::string, std::string> left_behind(const Scheme& step, int64_t vocab) {
  Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
  const Scheme& s = run.scheme();
  initialize(run, kSeed);
  for (int number = 0; number < kSteps; ++number) {
    std::mt19937 random(100 + number);
    for (const char* name : {"tokens", "targets"}) {
      const Value v = input_named(s, name);
      auto* ids = static_cast<int32_t*>(run.data(v));
      for (int64_t i = 0; i < s[v].type.num_elements(); ++i) {
        ids[i] = static_cast<int32_t>(random() % vocab);
      }
    }
    run.set_number(input_named(s, "rate"), 1e-3);
    auto* counter = static_cast<int64_t*>(run.data(input_named(s, kRandomCounter)));
    counter[0] = kSeed, counter[1] = number, counter[2] = 0;
    run.step();
  }
  std::map<std::string, std::string> bytes;
  const auto take = [&](const std::string& name, Value v) {
    const auto* data = static_cast<const char*>(run.data(v));
    bytes[name] = std::string(data, s[v].type.bytes().count);
  };
  for (const Carry& c : s.carries) take(to_string(s[c.in].source), c.in);
  for (size_t i = 0; i < s.outputs.size(); ++i) take("output " + std::to_string(i), s.outputs[i]);
  return bytes;
}

TEST(ExactLaw, DefaultsChangeNoBitOfAStep) {
  const int threads = num_threads();
  for (const Model& model : tiny_models()) {
    for (const int count : {1, 2}) {
      set_num_threads(count);
      set_grain(1);  // small as it is, the work is shared
      const Scheme plain = step_of(model, "-fuse | -simplify | -gang_updates");
      const auto want = left_behind(plain, model.vocab);
      for (const char* stack : {"-fuse", "-simplify", "-gang_updates", ""}) {
        const Scheme step = step_of(model, stack);
        EXPECT_LE(step.morphisms.size(), plain.morphisms.size());
        const auto got = left_behind(step, model.vocab);
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [name, bytes] : want) {
          EXPECT_TRUE(got.at(name) == bytes)
              << model.preset << ", stack '" << stack << "', " << count << " threads: " << name;
        }
      }
    }
  }
  set_grain(0);
  set_num_threads(threads);
}

TEST(ExactLaw, UpdatesInOnePassChangeNoBit) {
  const int threads = num_threads();
  set_num_threads(2);
  set_grain(1);
  for (const Model& model : tiny_models()) {
    for (const std::string stack : {"bf16", "fp16", "accumulate(3)", "lora(rank=2)"}) {
      const Scheme step = step_of(model, stack);
      EXPECT_TRUE(std::any_of(step.morphisms.begin(), step.morphisms.end(),
                              [](const Morphism& m) { return m.op == "gang"; }));
      const auto want = left_behind(step_of(model, stack + " | -gang_updates"), model.vocab);
      EXPECT_TRUE(left_behind(step, model.vocab) == want) << model.preset << " " << stack;
    }
  }
  set_grain(0);
  set_num_threads(threads);
}

TEST(ExactLaw, FusionFindsTheChainsOfABlock) {
  for (const Model& model : tiny_models()) {
    const size_t with = step_of(model, "").morphisms.size(),
                 without = step_of(model, "-fuse").morphisms.size();
    EXPECT_LE(with + 6 * 2, without) << model.preset << ": at least six a block";
  }
}

// A plan holds registers beside tensors, at most these for a thread; and the gradient of a bias or
// a gain, a thousandth of a step, may be there a moment earlier.
TEST(ExactLaw, FusionRaisesNoPeak) {
  constexpr int kThreads = 2;
  constexpr int64_t kRegisters = 64 << 10;
  std::vector<Model> models = tiny_models();
  models.push_back({"gpt2", {{"layers", 2}}, 128, 0});
  models.push_back({"llama-tiny", {{"layers", 4}}, 256, 0});
  models.push_back({"char", {{"layers", 6}, {"dropout", 0.2}}, 256, 0});
  for (const Model& model : models) {
    for (const double clip : {0.0, 1.0}) {
      const auto peak = [&](const char* stack) {
        return make_plan(step_of(model, stack, clip), {.threads = kThreads}).live_peak.count;
      };
      const int64_t fused = peak(""), apart = peak("-fuse"), plain = peak("-fuse | -simplify");
      const int64_t slack = model.vocab ? kThreads * kRegisters : 0;  // of the tiny ones
      EXPECT_LE(fused, apart + apart / 1000 + slack) << model.preset << " clip " << clip;
      EXPECT_LE(apart, plain) << model.preset << " clip " << clip;
    }
  }
}

}  // namespace
}  // namespace adjoint
