// A zero-bubble schedule that is searched for with the times of a pipeline's slots, predicted or
// measured, and within a limit on memory that the plans of all stages keep.
#pragma once
#include <optional>

#include "report/stage_table.h"

namespace adjoint {

struct FoundSchedule {
  Schedule schedule = {};
  Simulated simulated = {};  // with the times by which it was found
  Simulated asked = {};      // the list whose times these are, with the same ones
  Bytes most = {0};          // that any stage's plan has
  double parts = 0;          // in flight on a rank, at most: what the search was given
};

struct ScheduleSearch {
  double most_parts = 1;           // in flight on a rank
  std::optional<Bytes> most = {};  // bytes of any stage's plan; none: as many as the parts want
};

// `whole` is the finished step whose stages are planned in `stages`, by a list with slots for the
// weights' gradients, so that their times are known. Refuses a limit that no list keeps.
FoundSchedule search_schedule(const Scheme& whole, const PlannedStages& stages, SlotTimes times,
                              const PlanOptions& options, const Costs& costs,
                              const ScheduleSearch& wanted);

}  // namespace adjoint
