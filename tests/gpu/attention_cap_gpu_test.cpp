// Attention's gradient whole, some samples or heads at a time, and by our own kernels, as a cap on
// workspaces decides. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include "device/gpu.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "kernels/kernel.h"
#include "models/small_models.h"
#include "run/random_steps.h"

namespace adjoint {
namespace {

std::vector<double> losses(const Scheme& step, bool deterministic, Bytes cap) {
  Run run(step, make_plan(step, {.threads = num_threads(),
                                 .target = Target::kCuda,
                                 .deterministic = deterministic,
                                 .workspace_cap = cap}));
  RandomSteps random(run, 1);
  random.begin();
  std::vector<double> all;
  for (int i = 0; i < 4; ++i) {
    random.feed();
    random.step();
    all.push_back(random.loss());
  }
  return all;
}

TEST(GpuAttention, ACapOnWorkspacesChangesLittle) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const Scheme forward = elaborate_preset(
      "gpt2",
      {{"batch", 4}, {"seq", 64}, {"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 500}});
  const Scheme step = build_step(forward, parse_stack("bf16"), {.target = Target::kCuda}).scheme;
  for (const bool deterministic : {false, true}) {
    const auto whole = losses(step, deterministic, kNoCap);
    for (const int64_t cap : {150'000, 82'000, 80'000}) {
      const auto capped = losses(step, deterministic, {cap});
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(capped[i], whole[i], 2e-3 * whole[i]) << cap << " step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace adjoint
