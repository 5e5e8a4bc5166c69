// Seconds and FLOPs of a step by op and block: everything is counted once, parts as often as they
// run, and what is recomputed apart.
#include "report/step_times.h"

#include <gtest/gtest.h>

#include "analysis/totals.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

struct Planned {
  Scheme scheme;
  Plan plan;
  std::vector<double> seconds;  // call i takes 2^-(i mod 8): sums are exact
};

Planned planned(const std::string& stack) {
  const Scheme forward =
      elaborate_preset("char", {{"batch", 4}, {"seq", 8}, {"layers", 3}, {"hidden", 32}});
  Planned p{
      .scheme = build_step(forward, parse_stack(stack), {}).scheme, .plan = {}, .seconds = {}};
  p.plan = make_plan(p.scheme, {.threads = num_threads()});
  for (size_t i = 0; i < p.plan.calls.size(); ++i) p.seconds.push_back(1.0 / (1 << i % 8));
  return p;
}

TEST(StepTimes, RowsAddUpToTheStep) {
  const Planned p = planned("accumulate(2) | checkpoint(every=1)");
  double seconds = 0;
  for (size_t i = 0; i < p.plan.calls.size(); ++i) {
    const PlannedCall& call = p.plan.calls[i];
    const bool body = p.scheme.morphisms[call.morphism].section == Section::kBody;
    if (!call.is_view) seconds += (body ? 2 : 1) * p.seconds[i];
  }
  const TimeRow step = time_of_step(p.scheme, p.plan, p.seconds);
  EXPECT_EQ(step.total_seconds(), seconds);
  const auto flops = flops_by_phase(p.scheme);
  EXPECT_EQ(step.total_flops(), flops[0] + flops[1] + flops[2]);
  for (const auto& rows :
       {time_by_op(p.scheme, p.plan, p.seconds), time_by_block(p.scheme, p.plan, p.seconds)}) {
    TimeRow sum;
    for (const TimeRow& row : rows) {
      sum.calls += row.calls;
      for (int k = 0; k < kNumKinds; ++k) sum.seconds[k] += row.seconds[k];
    }
    EXPECT_EQ(sum.calls, step.calls);
    EXPECT_EQ(sum.seconds, step.seconds);
  }
}

TEST(StepTimes, WhatIsRecomputedIsNotTheModels) {
  const Planned plain = planned("-recompute_cheap"), again = planned("checkpoint(every=1)");
  const auto flops = [](const Planned& p) {
    return flops_of(time_of_step(p.scheme, p.plan, p.seconds));
  };
  EXPECT_EQ(flops(plain).hardware, flops(plain).model);
  EXPECT_EQ(flops(again).model, flops(plain).model);
  // Every block's forward once more: a third of what forward and backward are, or somewhat less.
  EXPECT_GT(flops(again).hardware, 1.15 * flops(again).model);
  EXPECT_LT(flops(again).hardware, 1.34 * flops(again).model);
}

TEST(StepTimes, BlocksStandInTheOrderOfTheStep) {
  const Planned p = planned("");
  std::vector<std::string> blocks;
  for (const TimeRow& row : time_by_block(p.scheme, p.plan, p.seconds)) {
    if (row.name[0] == 'b') blocks.push_back(row.name);
  }
  EXPECT_EQ(blocks, (std::vector<std::string>{"block[0]", "block[1]", "block[2]"}));
  const auto ops = time_by_op(p.scheme, p.plan, p.seconds);
  for (size_t i = 1; i < ops.size(); ++i) {
    EXPECT_GE(ops[i - 1].total_seconds(), ops[i].total_seconds());
  }
}

}  // namespace
}  // namespace adjoint
