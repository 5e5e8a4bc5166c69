// --fit believes only what it planned for the threads that will run: whatever their number, an
// answer is within its budget, and it and every point of a Pareto curve have the bytes and the
// seconds that a plan of their stack has.
#include <gtest/gtest.h>

#include "device/parallel.h"
#include "models/test_models.h"
#include "train/fit_budget.h"

namespace adjoint {
namespace {

struct Subject {
  BoundModel model;
  std::string stack;
};

Subject subject(std::string_view name) {
  const auto bound = [](const std::string& model, int64_t batch, nlohmann::json settings) {
    return BoundModel(find_model(model), {.batch = batch, .settings = std::move(settings)});
  };
  if (name == "char") return {bound("char", 12, {{"layers", 2}}), "accumulate(1)"};
  if (name == "llama") return {bound("llama-tiny", 4, {{"layers", 2}}), "accumulate(1)"};
  return {bound(test_model_file("hybrid"), 2, {{"layers", 2}}), "bf16"};
}

struct Planned {
  Bytes peak;
  double seconds = 0;
};
Planned planned(const BoundModel& model, const FitOptions& options, const std::string& stack) {
  StepOptions step = options.step;
  step.stack = stack;
  const Scheme scheme = training_step(model.forward(), step);
  const Plan plan = make_plan(scheme, options.plan);
  return {plan.footprint(), predict_time(scheme, plan, options.costs).step};
}

class FitThreads : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(FitThreads, AnswersAreWhatAPlanSays) {
  const Subject s = subject(GetParam());
  for (const int threads : {1, 2, 3, 8, 16}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    set_num_threads(threads);
    const FitOptions options = fit_options({.seconds = 0}, s.model, {.stack = s.stack}, threads);
    Fit fit(s.model.forward(), options);
    const auto check = [&](const FitPoint& point) {
      const Planned again = planned(s.model, options, point.stack);
      EXPECT_EQ(point.peak, again.peak) << point.stack;
      EXPECT_NEAR(point.seconds, again.seconds, 1e-12) << point.stack;
    };
    const std::vector<FitPoint> curve = fit.pareto(3);
    ASSERT_GE(curve.size(), 2u);
    for (const FitPoint& point : curve) check(point);
    const int64_t least = curve.front().peak.count, most = curve.back().peak.count;
    for (const int64_t budget : {least, least + (most - least) / 3, most - 1}) {
      const auto point = fit.best({budget});
      ASSERT_TRUE(point);
      EXPECT_LE(point->peak.count, budget);
      check(*point);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, FitThreads, ::testing::Values("char", "llama", "hybrid"));

}  // namespace
}  // namespace adjoint
