// A default never costs: with each functor that is on by itself switched off, neither the planned
// peak nor the predicted time of a step is lower by more than a percent. On a CPU and on two GPUs,
// for models of the sizes that people train, cut to a few blocks.
#include <gtest/gtest.h>

#include "cost/sheet.h"
#include "functors/pipeline.h"
#include "plan/plan.h"
#include "plan/timing.h"
#include "train/bound_model.h"

namespace adjoint {
namespace {

struct Model {
  std::string name;
  int64_t batch, context;
  nlohmann::json settings;
};

const Model kModels[] = {
    {"gpt2", 8, 1024, {{"layers", 2}}},
    {"llama3.2-1b", 4, 2048, {{"layers", 2}}},
    {std::string(SOURCE_DIR) + "/tests/models/qwen.scheme",
     8,
     1024,
     {{"context", 1024},
      {"layers", 2},
      {"hidden", 896},
      {"heads", 14},
      {"kv_heads", 2},
      {"dim", 64},
      {"ffn", 4864},
      {"vocab", 151936}}},
    {std::string(SOURCE_DIR) + "/tests/models/mixtral.scheme",
     8,
     256,
     {{"context", 256}, {"hidden", 512}, {"heads", 8}, {"ffn", 1024}, {"vocab", 32000}}},
    {std::string(SOURCE_DIR) + "/tests/models/moe.scheme",
     8,
     256,
     {{"context", 256}, {"hidden", 512}, {"heads", 8}, {"vocab", 32000}}},
};

const std::string kStacks[] = {
    "bf16",
    "accumulate(4)",
    "bf16 | checkpoint(block)",
    "bf16 | accumulate(4)",
    "lora(8) | bf16",
    "lora(8) | quantize(nf4) | bf16",
    "lora(8) | quantize(nf4) | bf16 | checkpoint(block)",
};

struct Price {
  double bytes, seconds;
};

Price price(const Scheme& forward, const std::string& stack, const Costs& costs) {
  const bool gpu = !costs.sheet.per_core;
  const StepOptions options{.stack = stack, .target = gpu ? Target::kCuda : Target::kCpu};
  const Scheme step = build_step(forward, parse_stack(stack), options).scheme;
  const Plan plan = make_plan(
      step,
      {.threads = costs.threads, .target = options.target, .workspace_cap = costs.sheet.workspace});
  return {static_cast<double>(plan.arena.count), predict_time(step, plan, costs).step};
}

class Defaults : public testing::TestWithParam<const char*> {};

TEST_P(Defaults, CostNothing) {
  const Costs costs{.sheet = find_device(GetParam()), .threads = 2};
  const bool gpu = !costs.sheet.per_core;
  for (const Model& model : kModels) {
    const BoundModel bound(
        find_model(model.name),
        {.batch = model.batch, .context = model.context, .settings = model.settings});
    const Scheme forward = bound.forward();
    for (const std::string& stack : kStacks) {
      const Price with = price(forward, stack, costs);
      for (const Functor* functor : all_functors()) {
        if (!functor->by_default || (functor->on_gpu_only && !gpu)) continue;
        const Price without = price(forward, stack + " | -" + functor->name, costs);
        EXPECT_LE(with.bytes, 1.01 * without.bytes)
            << functor->name << " raises the peak of " << model.name << ", " << stack;
        EXPECT_LE(with.seconds, 1.01 * without.seconds)
            << functor->name << " raises the time of " << model.name << ", " << stack;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Defaults, testing::Values("cpu", "h200", "rtx4090"),
                         [](const auto& info) { return std::string(info.param); });

// The joined weights of an adapter's frozen base are dequantized for each phase, as they are apart:
// checkpointing makes the step smaller, and joining does not make it larger.
TEST(Defaults, JoiningQuantizedProjectionsKeepsNoWeight) {
  const BoundModel model(find_model("llama3-8b"),
                         {.batch = 1, .context = 2048, .settings = {{"layers", 8}}});
  const Scheme forward = model.forward();
  const Costs costs{.sheet = find_device("rtx4090")};
  const std::string qlora = "lora(8) | quantize(nf4) | bf16";
  const double plain = price(forward, qlora, costs).bytes;
  const double checkpointed = price(forward, qlora + " | checkpoint(block)", costs).bytes;
  const double apart =
      price(forward, qlora + " | checkpoint(block) | -join_projections", costs).bytes;
  EXPECT_LE(checkpointed, 1.01 * plain);
  EXPECT_LE(checkpointed, 1.01 * apart);
}

}  // namespace
}  // namespace adjoint
