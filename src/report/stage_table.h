// What the stages of a pipeline hold and do, as planned for each of them and as its schedule lets
// them work together.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/timing.h"
#include "report/timeline.h"
#include "run/profile.h"
#include "schedules/simulate.h"

namespace adjoint {

struct PlannedStages {
  Schedule schedule = {};
  std::vector<Scheme> steps = {};  // per stage
  std::vector<Plan> plans = {};
  std::vector<StepTime> times = {};
  SlotTimes slots = {};
  Simulated simulated = {};

  size_t largest() const;          // the stage whose plan is
  size_t largest_on_host() const;  // and the one that has most there
};

// Of a finished step with an axis `stage`.
PlannedStages plan_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs);
void time_stages(PlannedStages& stages, const Costs& costs);  // anew, by other costs

// When the calls of a stage begin in the simulated step.
StepClock clock_of_stage(const PlannedStages& stages, size_t stage);

// What the simulator goes by: seconds of every stage, and those of messages by this fabric.
SlotTimes slot_times(const PlannedStages& stages, const std::vector<StageSeconds>& seconds,
                     const Fabric& fabric);

// A measured step beside what the simulator makes of slots that were measured on each rank alone.
// It refers to the planned stages, which outlive it.
struct StagesAtWork {
  const PlannedStages& planned;
  MeasuredStages measured;
  SlotTimes slots = {};
  Simulated simulated = {}, real = {};

  StagesAtWork(const PlannedStages& stages, MeasuredStages found);
  double ratio() const;  // of the measured step's seconds to the simulated one's
};

// One line per stage, then the step's seconds and its bubble.
std::string stage_table(const PlannedStages& stages);
// {"schedule", "seconds", "bubble", "stages": [{"bytes", "parameters", "in_flight", "busy_s",
// "forward_s", ...}]}
// `with_calls`: each slot also lists the sources of its calls.
nlohmann::json stages_json(const PlannedStages& stages, bool with_calls = false);

// The measured step: seconds by kind of slot on each rank alone, and of the step together.
std::string measured_stage_table(const StagesAtWork& work);
// The same beside planned and measured bytes of every rank.
std::string measured_stage_table(const StagesAtWork& work, const std::vector<Measured>& ranks);
// A step as it was measured beside the simulated one: docs/json.md, "Measured stages".
nlohmann::json measured_stages_json(const StagesAtWork& work);
// Planned and measured bytes of every rank: docs/json.md, "A measured rank".
nlohmann::json ranks_of_stages_json(const StagesAtWork& work, const std::vector<Measured>& ranks);

}  // namespace adjoint
