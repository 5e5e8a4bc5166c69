// --fit: turns a budget, as the user writes it, into costs, options and the stack that fits.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/activity.h"
#include "plan/fit.h"
#include "train/bound_model.h"
#include "train/fit_wish.h"

namespace adjoint {

// Costs on the device, or those that a profile measured. Refuses a profile of another model.
Costs costs_for(const FitWish& wish, const BoundModel& model, int threads);

// How a step is planned for a device: workspaces within its sheet's cap.
PlanOptions plan_options(const Costs& costs);

FitOptions fit_options(const FitWish& wish, const BoundModel& model, const StepOptions& step,
                       int threads);

// Tells how many plans a search has made. The total is unknown.
class PlansMade {
 public:
  std::function<void(const std::string&)>
  told();  // for FitOptions::say; this object must outlive it

 private:
  Activity activity_{Progress{.what = "searching for a stack that fits", .unit = "plans made"}};
  int64_t count_ = 0;
};

// The fastest stack within the budget. A budget that is too small is refused, with the smallest
// possible one.
FitPoint fitted(Fit& fit, const FitWish& wish);

}  // namespace adjoint
