// --fit: from a budget in words to the stack that fits it.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "plan/fit.h"
#include "train/bound_model.h"
#include "train/progress.h"

namespace adjoint {

// What a user says of the machine and of memory.
struct FitWish {
  std::string budget = {};       // "24GB"; "": nothing is chosen
  std::string device = "cpu";    // a sheet's name, or its file
  std::string profile = {};      // a folder of `adjoint profile`: costs as they were measured
  bool may_approximate = false;  // precision may be lowered
};

// A size above 0; refuses everything else.
Bytes budget_of(const std::string& text);

// Costs on the device, or those that a profile measured. Refuses a profile of another model.
Costs costs_for(const FitWish& wish, const BoundModel& model, int threads);

// "64MiB", the cap on workspaces that a run is told; Error.
Bytes workspace_of(const std::string& text);

// How a step is planned for a device: workspaces within its sheet's cap.
PlanOptions plan_options(const Costs& costs);

FitOptions fit_options(const FitWish& wish, const BoundModel& model, const StepOptions& step,
                       int threads);

// Says on a terminal, from the third second on, how many plans a search has made so far; nobody
// knows of how many.
class PlansMade {
 public:
  std::function<void(const std::string&)> told();  // to be FitOptions::say; this must outlive it

 private:
  Progress bar_{0, 0};
  int64_t count_ = 0;
};

// The fastest within the wish's budget. Refuses a budget below the smallest, and says that one.
FitPoint fitted(Fit& fit, const FitWish& wish);

}  // namespace adjoint
