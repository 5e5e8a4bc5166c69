// --fit on models of the sizes that people train: a tuned model of 8 billion parameters and, on 64
// ranks, one of 70 billion. The answers are no slower than the stacks that people write by hand.
#include <gtest/gtest.h>

#include <iostream>

#include "train/fit_budget.h"

namespace adjoint {
namespace {

// The fastest within the budget, with nothing cut off, beside those of `by_hand` that fit.
void expect_no_slower(const BoundModel& model, const std::string& budget, const StepOptions& step,
                      const std::vector<std::string>& by_hand) {
  const FitWish wish{.budget = budget, .may_approximate = true, .seconds = 0, .device = "h100"};
  const FitOptions options = fit_options(wish, model, step, 1);
  Fit fit(model.forward(), options);
  const FitPoint found = fitted(fit, wish);
  EXPECT_LE(found.peak, budget_of(budget));
  std::cout << fit.considered().size() << " plans, " << 1e3 * found.seconds
            << " ms: " << found.stack.substr(0, found.stack.find("reside(")) << "\n";
  Looks looks(model.forward(), options);
  int fitting = 0;
  for (const std::string& stack : by_hand) {
    const auto point = looks.at(stack);
    ASSERT_TRUE(point) << stack;
    if (point->peak > budget_of(budget)) continue;
    ++fitting;
    EXPECT_LE(found.seconds, point->seconds) << stack;
  }
  EXPECT_GT(fitting, 0);
}

TEST(FitSizes, EightBillionTunedWithin24GB) {
  const BoundModel model(find_model("llama3-8b"), {.batch = 2, .context = 2048});
  expect_no_slower(model, "24GB", {.stack = "lora(16)"},
                   {"bf16(frozen=bf16) | lora(16) | checkpoint(block)", "qlora"});
}

TEST(FitSizes, SeventyBillionOn64Ranks) {
  const BoundModel model(
      find_model("llama3-8b"),
      {.batch = 64,
       .context = 4096,
       .settings = {{"layers", 80}, {"hidden", 8192}, {"heads", 64}, {"ffn", 28672}}});
  const std::string sharded = "bf16 | data_parallel(64) | zero(3)";
  expect_no_slower(model, "80GB", {.stack = sharded, .on_mesh = true, .ranks = 64},
                   {sharded + " | checkpoint(block)"});
}

}  // namespace
}  // namespace adjoint
