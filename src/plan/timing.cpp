#include "plan/timing.h"

#include <algorithm>
#include <array>

namespace adjoint {

StepTime predict_time(const Scheme& scheme, const Plan& plan, const Costs& costs) {
  StepTime time;
  std::array<double, 3> work = {}, copies = {};  // per phase
  for (const PlannedCall& call : plan.calls) {
    const Morphism& m = scheme.morphisms[call.morphism];
    const double times = m.section == Section::kBody ? scheme.parts : 1;
    const double seconds = call.is_view ? 0 : costs.seconds(scheme, m);
    time.seconds.push_back(seconds);
    (m.op == "move" ? copies : work)[static_cast<size_t>(m.phase)] += times * seconds;
    const double flops = times * static_cast<double>(count_flops(call_of(scheme, m)));
    time.flops += flops;
    if (m.epoch > 0) time.recomputed_flops += flops;
  }
  // Copies that run beside the arithmetic cost nothing until there are more of them than their own
  // phase can hide: state for an update cannot come before the gradients are known.
  for (size_t p = 0; p < work.size(); ++p) {
    time.work += work[p];
    time.copies += copies[p];
    time.step += costs.sheet.overlaps ? std::max(work[p], copies[p]) : work[p] + copies[p];
  }
  return time;
}

}  // namespace adjoint
