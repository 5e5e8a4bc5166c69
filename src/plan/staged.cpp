#include "plan/staged.h"

#include <algorithm>
#include <map>

#include "functors/stage_schedule.h"
#include "functors/stage_step.h"
#include "ops/op_def.h"
#include "schedules/simulate.h"

namespace adjoint {

namespace {

// Adds up the seconds of a stage's slots by kind and chunk, as a mean over the parts, and raises
// the update and the largest message to its own. Messages cost a rank nothing, they travel beside
// its work.
void add_slots(const TimedStep& step, const std::vector<Slot>& list, SlotTimes& times,
               int64_t& largest_message) {
  std::map<std::pair<SlotKind, int>, int> count;
  for (const Slot& slot : list) ++count[{slot.kind, slot.chunk}];
  double update = 0;
  for (size_t at = 0; at < step.plan.calls.size(); ++at) {
    const Morphism& m = step.scheme.morphisms[step.plan.calls[at].morphism];
    const bool body = m.section == Section::kBody;
    if (op_named(m.op).to_one_rank) {
      int64_t bytes = 0;
      for (const Value in : m.inputs) bytes += step.scheme[in].type.bytes().count;
      if (body) largest_message = std::max(largest_message, bytes);
    } else if (body) {
      const Slot& slot = list[m.slot - 1];
      std::vector<double>& kind = slot.kind == SlotKind::kForward    ? times.forward
                                  : slot.kind == SlotKind::kBackward ? times.backward
                                                                     : times.weight;
      kind[slot.chunk] += step.time.seconds[at] / count[{slot.kind, slot.chunk}];
    } else if (m.section == Section::kEpilogue) {
      update += step.time.seconds[at];
    }
  }
  times.update = std::max(times.update, update);
}

}  // namespace

TimedStep timed_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs) {
  const Schedule schedule = schedule_of(whole);
  SlotTimes times = equal_times(schedule.chunks, 0, 0, 0);
  int64_t largest_message = 0;
  TimedStep largest;
  double flops = 0, recomputed = 0;
  Bytes host{0};
  std::vector<Scheme> steps = steps_of_stages(whole);
  for (size_t stage = 0; stage < steps.size(); ++stage) {
    TimedStep step{.scheme = std::move(steps[stage]), .plan = {}, .time = {}};
    step.plan = make_plan(step.scheme, options);
    step.time = predict_time(step.scheme, step.plan, costs);
    add_slots(step, schedule.lists[stage], times, largest_message);
    flops = std::max(flops, step.time.flops);
    recomputed = std::max(recomputed, step.time.recomputed_flops);
    host = std::max(host, step.plan.host.size);
    if (stage == 0 || step.plan.footprint() > largest.plan.footprint()) largest = std::move(step);
  }
  const Fabric& fabric = costs.sheet.fabric;
  times.send = fabric.latency + fabric.seconds_per_byte * static_cast<double>(largest_message);
  times.barrier = true;
  times.exchange = 2 * fabric.latency;
  largest.time.step = simulate(schedule, times).seconds;
  largest.time.flops = flops;
  largest.time.recomputed_flops = recomputed;
  largest.host = host;
  return largest;
}

}  // namespace adjoint
