#include "report/schedule_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "schedules/automatic.h"

namespace adjoint {

namespace {

bool has_weight_slots(const Schedule& schedule) {
  return std::ranges::all_of(schedule.lists, [](const std::vector<Slot>& list) {
    return std::ranges::any_of(list, [](const Slot& s) { return s.kind == SlotKind::kWeight; });
  });
}

}  // namespace

FoundSchedule search_schedule(const Scheme& whole, const PlannedStages& stages, SlotTimes times,
                              const PlanOptions& options, const Costs& costs,
                              const ScheduleSearch& wanted) {
  const Schedule& timed = stages.schedule;
  if (timed.chunks != timed.ranks || !has_weight_slots(timed)) {
    fail("--write-schedule: '", timed.name,
         "' has no slots for the weights' gradients of one chunk a rank, so their times are not "
         "known; say schedule=zb_1p or zb_2p, for example");
  }
  // Those by chunk and kind hold for every list, and so does the end of a step.
  times.slots.clear();
  const auto found_with = [&](double parts) {
    SlotTimes searched = times;
    searched.before.clear();
    searched.end.clear();
    FoundSchedule found{
        .schedule = automatic_zero_bubble(timed.ranks, timed.parts, searched, parts),
        .parts = parts};
    found.simulated = simulate(found.schedule, times);
    found.asked = simulate(timed, times);
    Scheme as_found = whole;
    as_found.schedule = print(found.schedule);
    for (const Plan& plan : plan_stages(as_found, options, costs).plans) {
      found.most = std::max(found.most, plan.footprint());
    }
    return found;
  };
  FoundSchedule best = found_with(wanted.most_parts);
  if (!wanted.most || best.most <= *wanted.most) return best;
  best = found_with(1);
  if (best.most > *wanted.most) {
    fail("--schedule-memory: with one part in flight a stage's plan has ", human(best.most), " (",
         best.most.count, " bytes), and ", human(*wanted.most),
         " were allowed; take more parts, or recompute (checkpoint)");
  }
  // More parts in flight want more bytes, so that the most which fit are found by halves.
  double fits = 1, too_many = wanted.most_parts;
  while (too_many - fits > 1) {
    const double middle = std::floor((fits + too_many) / 2);
    FoundSchedule found = found_with(middle);
    const bool is_within = found.most <= *wanted.most;
    (is_within ? fits : too_many) = middle;
    if (is_within && found.simulated.seconds <= best.simulated.seconds) best = std::move(found);
  }
  return best;
}

}  // namespace adjoint
