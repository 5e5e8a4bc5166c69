// What a stack costs with each functor that is on by itself, and without: the peak of a rank, the
// predicted time of a step, and the bytes that a rank sends.
#pragma once
#include <gtest/gtest.h>

#include <map>

#include "cost/collective.h"
#include "cost/sheet.h"
#include "functors/pipeline.h"
#include "functors/stage_step.h"
#include "plan/plan.h"
#include "plan/timing.h"
#include "scheme/shards.h"
#include "train/bound_model.h"

namespace adjoint {

struct PricedModel {
  std::string name;
  int64_t batch, context;
  nlohmann::json settings;

  Scheme forward() const {
    return BoundModel(find_model(name), {.batch = batch, .context = context, .settings = settings})
        .forward();
  }
};

struct Price {
  double bytes = 0, seconds = 0, sent = 0;
};

// Of a pipeline: of the stage that has, needs or sends most.
inline Price price(const Scheme& forward, const std::string& stack, const Costs& costs) {
  const bool gpu = !costs.sheet.per_core;
  const StepOptions options{
      .stack = stack, .target = gpu ? Target::kCuda : Target::kCpu, .on_mesh = true};
  const Scheme whole = build_step(forward, parse_stack(stack), options).scheme;
  const int stages = whole.schedule.empty() ? 1 : mesh_size(whole.mesh, kStageAxis);
  Price most;
  for (int stage = 0; stage < stages; ++stage) {
    const Scheme step = whole.schedule.empty() ? whole : step_of_stage(whole, stage);
    const Plan plan = make_plan(step, {.threads = costs.threads,
                                       .target = options.target,
                                       .workspace_cap = costs.sheet.workspace});
    double sent = 0;
    for (const Sent& row : sent_in_step(step, costs.sheet.fabric)) {
      sent += static_cast<double>(row.bytes.count);
    }
    most.bytes = std::max(most.bytes, static_cast<double>(plan.arena.count));
    most.seconds = std::max(most.seconds, predict_time(step, plan, costs).step);
    most.sent = std::max(most.sent, sent);
  }
  return most;
}

// None of the three falls by more than a percent where a default is switched off; or by more than
// what is allowed a functor, by name.
inline void expect_defaults_cost_nothing(const PricedModel& model, const Scheme& forward,
                                         const std::string& stack, const Costs& costs,
                                         const std::map<std::string_view, double>& allowed = {}) {
  const bool gpu = !costs.sheet.per_core;
  const Price with = price(forward, stack, costs);
  for (const Functor* functor : all_functors()) {
    if (!functor->by_default || (functor->on_gpu_only && !gpu)) continue;
    const std::string where = model.name + ", " + stack + ", " + costs.sheet.name;
    const Price without =
        price(forward, (stack.empty() ? "" : stack + " | ") + "-" + functor->name, costs);
    const auto other = allowed.find(functor->name);
    const double most = other == allowed.end() ? 1.01 : other->second;
    EXPECT_LE(with.bytes, most * without.bytes) << functor->name << " raises the peak of " << where;
    EXPECT_LE(with.seconds, most * without.seconds)
        << functor->name << " raises the time of " << where;
    EXPECT_LE(with.sent, most * without.sent)
        << functor->name << " raises what is sent of " << where;
  }
}

}  // namespace adjoint
