// How long a planned step takes on a described device, call by call.
#pragma once
#include <vector>

#include "cost/cost.h"
#include "plan/plan.h"

namespace adjoint {

struct StepTime {
  std::vector<double> seconds = {};  // per planned call, run once; 0 where there is nothing to run
  double step = 0;                   // all of it: the body as often as there are parts
  double work = 0;                   // of that arithmetic, and
  double copies = 0;                 // between tiers, which may hide behind it
  double flops = 0;                  // that the hardware does
  double recomputed_flops = 0;       // of them again: the model's are the rest
};

StepTime predict_time(const Scheme& scheme, const Plan& plan, const Costs& costs);

}  // namespace adjoint
