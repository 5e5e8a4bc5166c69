#include "plan/timing.h"

#include <algorithm>

namespace adjoint {

StepTime predict_time(const Scheme& scheme, const Plan& plan, const Costs& costs) {
  StepTime time;
  for (const PlannedCall& call : plan.calls) {
    const Morphism& m = scheme.morphisms[call.morphism];
    const double times = m.section == Section::kBody ? scheme.parts : 1;
    const double seconds = call.is_view ? 0 : costs.seconds(scheme, m);
    time.seconds.push_back(seconds);
    (m.op == "move" ? time.copies : time.work) += times * seconds;
    const double flops = times * static_cast<double>(count_flops(call_of(scheme, m)));
    time.flops += flops;
    if (m.epoch > 0) time.recomputed_flops += flops;
  }
  // Copies that run beside the arithmetic cost nothing until there are more of them.
  time.step = costs.sheet.overlaps ? std::max(time.work, time.copies) : time.work + time.copies;
  return time;
}

}  // namespace adjoint
