// How long a planned step takes on a described device, call by call.
#pragma once
#include <vector>

#include "cost/cost.h"
#include "plan/plan.h"

namespace adjoint {

struct StepTime {
  std::vector<double> seconds = {};  // per planned call, for one run of it; 0 for views
  double step = 0;                   // the whole step, with one run of the body per part
  double work = 0;                   // of that, arithmetic,
  double copies = 0;                 // and copies between tiers, which may be hidden behind it;
  double ranks = 0;                  // of collectives, if one came after the other,
  double ranks_waited = 0;           // and of that what the rest waits for: what is not hidden
  double flops = 0;                  // that the hardware does
  double recomputed_flops = 0;       // of them, recomputed ones; the rest are the model's
};

StepTime predict_time(const Scheme& scheme, const Plan& plan, const Costs& costs);

}  // namespace adjoint
