// Whole steps on the GPU: their laws, their loss beside the CPU's, steps recorded and call by call.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/gpu.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "kernels/harness.h"
#include "laws/verify.h"
#include "models/small_models.h"
#include "run/machine.h"
#include "run/profile.h"
#include "run/random_steps.h"

namespace adjoint {
namespace {

class GpuStep : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
};

Scheme small_step(const std::string& preset, const std::string& stack, int64_t hidden = 64) {
  const Scheme forward = elaborate_preset(
      preset,
      {{"batch", 4}, {"seq", 64}, {"layers", 2}, {"hidden", hidden}, {"heads", 4}, {"vocab", 500}});
  return build_step(forward, parse_stack(stack), {.target = Target::kCuda}).scheme;
}

std::vector<double> losses(const Scheme& step, Target target, int steps,
                           bool deterministic = true) {
  Run run(step,
          make_plan(step,
                    {.threads = num_threads(), .target = target, .deterministic = deterministic}));
  RandomSteps random(run, 1);
  random.begin();
  std::vector<double> all;
  for (int i = 0; i < steps; ++i) {
    random.feed();
    random.step();
    all.push_back(random.loss());
  }
  return all;
}

TEST_F(GpuStep, LosesAsTheCpuDoes) {
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    for (const char* stack : {"", "accumulate(2)", "checkpoint(every=1)", "bf16"}) {
      const Scheme step = small_step(preset, stack);
      const auto cpu = losses(step, Target::kCpu, 4), gpu = losses(step, Target::kCuda, 4);
      const double allowed = std::string(stack) == "bf16" ? 2e-3 : 2e-5;
      for (size_t i = 0; i < cpu.size(); ++i) {
        EXPECT_NEAR(gpu[i], cpu[i], allowed * cpu[i]) << preset << " '" << stack << "' step " << i;
      }
      // The usual kernels, whose sums have no order.
      const auto usual = losses(step, Target::kCuda, 4, false);
      for (size_t i = 0; i < cpu.size(); ++i) {
        EXPECT_NEAR(usual[i], cpu[i], allowed * cpu[i])
            << preset << " '" << stack << "' step " << i;
      }
    }
  }
}

// With gelu and its gradient as epilogues, which only steps that are not deterministic have, and a
// table of an odd number of rows in whose gradient the embedding's is added.
TEST_F(GpuStep, LosesAsTheCpuDoesWithEpilogues) {
  const Scheme step = small_step("gpt2", "bf16 | -recompute_cheap", 512);
  for (const char* op : {"linear_act", "contract_map"}) {
    const auto is_op = [&](const Morphism& m) { return m.op == op; };
    ASSERT_EQ(std::count_if(step.morphisms.begin(), step.morphisms.end(), is_op), 2) << op;
  }
  const auto cpu = losses(step, Target::kCpu, 4), gpu = losses(step, Target::kCuda, 4, false);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], 2e-3 * cpu[i]) << i;
}

// Data of the next steps lands while this one runs: as if each had been waited for.
TEST_F(GpuStep, TakesDataThatComesEarly) {
  const Scheme step = small_step("gpt2", "");
  std::vector<std::vector<uint64_t>> seen;
  for (const bool waits : {true, false}) {
    adjoint::Run run(
        step, make_plan(step, {.threads = 1, .target = Target::kCuda, .deterministic = true}),
        {.reference = false, .poison = false});
    RandomSteps(run, 1).begin();
    for (int i = 0; i < 6; ++i) {
      RandomSteps(run, 10 + i).feed();  // other data each time, sent behind a step that still runs
      run.step();
      if (waits) run.synchronize();
    }
    seen.push_back(RandomSteps(run, 1).hashes());
  }
  EXPECT_EQ(seen[0], seen[1]);
}

// The first step runs call by call with its lanes apart, one that is watched one call after the
// other, the later ones as recordings: the same step again must give the same bits, whichever it
// is.
TEST_F(GpuStep, LanesAndRecordingsGiveTheSameBits) {
  for (const char* stack : {"bf16 | accumulate(2)", "offload(optimizer)",
                            "bf16 | offload(activations)", "offload(parameters) | accumulate(2)"}) {
    const Scheme step = small_step("gpt2", stack);
    adjoint::Run run(
        step, make_plan(step, {.threads = 1, .target = Target::kCuda, .deterministic = true}),
        {.reference = false, .poison = false});
    RandomSteps random(run, 1);
    std::vector<std::vector<uint64_t>> seen;
    for (int i = 0; i < 4; ++i) {
      run.after_call = nullptr;
      if (i == 1) run.after_call = [](int) {};
      random.begin();
      random.feed();
      random.step();
      seen.push_back(random.hashes());
    }
    for (size_t i = 1; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[0]) << stack << " " << i;
  }
}

// A plan's cost model finds what the run has timed: the few operands that are views it does not.
TEST_F(GpuStep, ItsProductsAreFoundInTheTable) {
  const Scheme step = small_step("gpt2", "bf16");
  const DeviceSheet sheet = sheet_here(Target::kCuda);
  const adjoint::Run run(
      step,
      make_plan(step, {.threads = 1, .target = Target::kCuda, .workspace_cap = sheet.workspace}));
  const Costs costs = costs_on(sheet, 1, product_table());
  int found = 0, all = 0;
  for (const Morphism& m : step.morphisms) {
    if (!is_product(m.op)) continue;
    found += costs.by_contest(step, m).has_value();
    ++all;
  }
  EXPECT_GT(all, 10);
  EXPECT_GE(found, 0.8 * all);
}

// To the byte: the highest that is planned is written, and none above it.
TEST_F(GpuStep, TouchesWhatWasPlanned) {
  for (const char* stack : {"bf16", "offload(optimizer)"}) {
    const Scheme step = small_step("gpt2", stack);
    const Plan plan =
        make_plan(step, {.threads = 1, .target = Target::kCuda, .deterministic = true});
    const Measured measured = measure_step(step, plan, {.steps = 2});
    const auto top = std::max_element(
        plan.storages.begin(), plan.storages.end(), [](const Storage& a, const Storage& b) {
          const auto end = [](const Storage& s) {
            return s.tier == Tier::kDevice ? s.offset + s.size : Bytes{0};
          };
          return end(a) < end(b);
        });
    ASSERT_FALSE(top->objects.empty()) << "a library may leave bytes of its workspace alone";
    EXPECT_EQ(measured.touched, plan.arena) << stack;
    EXPECT_EQ(measured.losses.size(), 4u);
    EXPECT_EQ(measured.host_touched, plan.host.size) << stack;
  }
}

class GpuLaws : public testing::TestWithParam<const char*> {};  // a test each: they take long

TEST_P(GpuLaws, AreKept) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const VerifyOptions options{.seeds = 1, .target = Target::kCuda};
  const Stack parsed = parse_stack(GetParam());
  const Report report =
      verify_stack(subjects_for(find_model("char"), parsed, options), parsed, nullptr);
  EXPECT_TRUE(report.ok) << GetParam() << ": " << report.reason;
}

INSTANTIATE_TEST_SUITE_P(Stacks, GpuLaws,
                         testing::Values("", "checkpoint(every=1)", "bf16 | checkpoint(every=2)",
                                         "accumulate(2)", "bf16 | accumulate(2) | lora(rank=4)",
                                         "offload(optimizer)"));

}  // namespace
}  // namespace adjoint
