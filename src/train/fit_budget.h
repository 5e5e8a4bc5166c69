// --fit: turns a budget, as the user writes it, into costs, options and the stack that fits.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/activity.h"
#include "comm/communicator.h"
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

// Tells how many plans a search has made, of how many nobody knows, and the fastest that is within
// the budget.
class PlansMade {
 public:
  explicit PlansMade(std::optional<Bytes> budget = {}) : budget_(budget) {}
  // For FitOptions::say; this object must outlive it.
  std::function<void(const FitPoint&)> told();

 private:
  Activity activity_{Progress{.what = "searching for a stack that fits", .unit = "plans made"}};
  std::optional<Bytes> budget_;
  int64_t count_ = 0;
  double best_ = 0;  // seconds of a step; 0: none fits yet
};

// The fastest stack within the budget. A budget that is too small is refused, with the smallest
// possible one.
FitPoint fitted(Fit& fit, const FitWish& wish);
// "" where the search tried everything, else a sentence that it was cut off.
std::string told_if_cut_off(const Fit& fit, const FitWish& wish);

// What `find` answers on the first rank, on all ranks, or the Error that it throws there: searches
// that end after some seconds find different stacks. One rank without a world.
std::string found_by_first_rank(const std::optional<Communicator>& world,
                                const std::function<std::string()>& find);

}  // namespace adjoint
