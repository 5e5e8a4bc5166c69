// What the stages of a pipeline hold and do, as planned for each of them and as its schedule lets
// them work together.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/timing.h"
#include "schedules/simulate.h"

namespace adjoint {

struct PlannedStages {
  Schedule schedule = {};
  std::vector<Scheme> steps = {};  // per stage
  std::vector<Plan> plans = {};
  std::vector<StepTime> times = {};
  SlotTimes slots = {};
  Simulated simulated = {};

  size_t largest() const;  // the stage whose plan is
};

// Of a finished step with an axis `stage`.
PlannedStages plan_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs);

// One line per stage, then the step's seconds and its bubble.
std::string stage_table(const PlannedStages& stages);
// {"schedule", "seconds", "bubble", "stages": [{"bytes", "parameters", "in_flight", "busy_s",
// "forward_s", ...}]}
nlohmann::json stages_json(const PlannedStages& stages);

}  // namespace adjoint
