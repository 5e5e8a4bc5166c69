// Every preset's step is planned, and its arena is within 2% of the largest sum of live bytes.
#include <gtest/gtest.h>

#include "functors/functor.h"
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
