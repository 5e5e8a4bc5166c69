// Every preset's step is planned, and its arena is within 2% of the largest sum of live bytes.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "functors/pipeline.h"
#include "plan/plan.h"
#include "train/bound_model.h"

namespace adjoint {
namespace {

class PresetPlan : public testing::TestWithParam<std::string> {};

TEST_P(PresetPlan, ArenaIsTight) {
  for (const int64_t batch : {1, 8}) {
    for (const double clip : {0.0, 1.0}) {
      const BoundModel model(find_model(GetParam()), {.batch = batch});
      const Scheme step = training_step(model.forward(), {.clip = clip});
      const Plan plan = make_plan(step, {.threads = 2});
      EXPECT_GE(plan.arena.count, plan.live_peak.count - 64);
      EXPECT_LE(static_cast<double>(plan.arena.count),
                1.02 * static_cast<double>(plan.live_peak.count))
          << "batch " << batch << " clip " << clip;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, PresetPlan, testing::ValuesIn(known_presets()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

// Under stacks too, in both tiers, and no workspace exceeds the cap.
TEST(Plan, StacksAreTight) {
  const std::string stacks[] = {"bf16",
                                "checkpoint(block)",
                                "checkpoint(sqrt)",
                                "accumulate(4)",
                                "offload(optimizer)",
                                "offload(activations)",
                                "lora",
                                "bf16 | checkpoint(block) | accumulate(4) | offload(parameters)"};
  for (const char* preset : {"ref", "gpt2", "llama-tiny"}) {
    const BoundModel model(find_model(preset), {.batch = 8});
    for (const std::string& stack : stacks) {
      SCOPED_TRACE(std::string(preset) + ", " + stack);
      const PlanOptions options{.threads = 2};
      const Plan plan = make_plan(training_step(model.forward(), {.stack = stack}), options);
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
        const Arena arena = plan.arena_of(tier);
        EXPECT_LE(double(arena.size.count), 1.02 * double(arena.live_peak.count));
      }
      for (const PlannedCall& call : plan.calls) {
        if (call.workspace < 0) continue;
        EXPECT_LE(plan.storages[call.workspace].size, options.workspace_cap);
      }
    }
  }
}

// On a GPU too: cuDNN would like 193 MiB for this gradient.
TEST(Plan, AttentionOnCudaKeepsToTheCap) {
  const BoundModel model(find_model("gpt2"), {.batch = 32});
  const StepOptions options{.target = Target::kCuda};
  const Scheme step = build_step(model.forward(), parse_stack("bf16"), options).scheme;
  const auto largest = [&](Bytes cap) {
    const Plan plan = make_plan(step, {.target = Target::kCuda, .workspace_cap = cap});
    Bytes most;
    for (const PlannedCall& call : plan.calls) {
      if (call.workspace < 0 || !step.morphisms[call.morphism].op.starts_with("attention"))
        continue;
      most = std::max(most, plan.storages[call.workspace].size);
    }
    return most;
  };
  EXPECT_GT(largest(kNoCap).count, 190 << 20);
  EXPECT_LE(largest({64 << 20}).count, 64 << 20);
  EXPECT_LE(largest({4 << 20}).count, 4 << 20);
}

// Parameter gradients alive together, at most, over the whole step.
int64_t most_parameter_gradients(const Scheme& step, const Plan& plan) {
  std::set<std::string> parameters;
  for (const Value in : step.inputs) {
    if (step[in].role == Role::kParameter) parameters.insert(step[in].source.path);
  }
  int64_t most = 0;
  for (int at = 0; at < static_cast<int>(plan.calls.size()); ++at) {
    int64_t live = 0;
    for (const Alive& a : plan.alive_at(at)) {
      if (a.tenant.category != Category::kGradients) continue;
      std::string path = step[a.tenant.object].source.path;
      if (path.ends_with(".joined")) path.resize(path.size() - 7);
      if (parameters.count(path)) live += a.tenant.size.count;
    }
    most = std::max(most, live);
  }
  return most;
}

// The tied table lives from the first gradient to the last, as the sum of its chunks and of its
// rows; beside it there are a few of one block's.
TEST(Plan, FewGradientsAreAliveWithoutClipping) {
  for (const auto& [preset, hidden, vocab, ffn] :
       {std::tuple("gpt2", 768, 50257, 3072), std::tuple("llama3.2-1b", 2048, 128256, 2 * 8192)}) {
    for (const char* stack : {"", "bf16 | checkpoint(block)"}) {
      SCOPED_TRACE(std::string(preset) + ", " + stack);
      const BoundModel model(find_model(preset), {.batch = 2, .context = 256});
      const int64_t table = 4LL * vocab * hidden, largest = 4LL * ffn * hidden;
      const Scheme free = training_step(model.forward(), {.clip = 0, .stack = stack});
      EXPECT_LT(most_parameter_gradients(free, make_plan(free, {.threads = 2})),
                2 * table + 2 * largest);
      const Scheme clipped = training_step(model.forward(), {.clip = 1, .stack = stack});
      EXPECT_GT(most_parameter_gradients(clipped, make_plan(clipped, {.threads = 2})),
                table + 11 * largest)
          << "the norm waits for all";
    }
  }
}

// Without clipping a gradient dies in its update, so they are never all there together.
TEST(Plan, GradientsDieInTheirUpdates) {
  const BoundModel model(find_model("gpt2"), {.batch = 1, .context = 16});
  const auto gradients = [&](double clip) {
    const Plan plan = make_plan(training_step(model.forward(), {.clip = clip}), {.threads = 2});
    return plan.at_peak()[static_cast<size_t>(Category::kGradients)];
  };
  constexpr int64_t kAll = 4 * 124'000'000LL, kTable = 4 * 50257 * 768LL;
  EXPECT_GT(gradients(1.0).count, kAll - 4 * 1024 * 768);
  // What is left is the two parts of the tied table, which lives from the first gradient to the
  // last.
  EXPECT_LT(gradients(0.0).count, 2 * kTable + kAll / 10);
}

}  // namespace
}  // namespace adjoint
