#include "plan/timing.h"

#include <algorithm>

#include "analysis/totals.h"
#include "plan/lanes.h"

namespace adjoint {

StepTime predict_time(const Scheme& scheme, const Plan& plan, const Costs& costs) {
  StepTime time;
  for (const PlannedCall& call : plan.calls) {
    const Morphism& m = scheme.morphisms[call.morphism];
    const double times = m.section == Section::kBody ? scheme.parts : 1;
    const double seconds = call.is_view ? 0 : costs.seconds(scheme, m);
    time.seconds.push_back(seconds);
    (lane_of(m) == Lane::kWork ? time.work : time.copies) += times * seconds;
    const double flops = times * static_cast<double>(count_flops(call_of(scheme, m)));
    time.flops += flops;
    time.recomputed_flops += times * static_cast<double>(repeated_flops(scheme, m));
  }
  time.step = time.work + time.copies;
  if (!costs.sheet.overlaps || time.copies == 0) return time;
  // Copies that run concurrently with the arithmetic cost only the time that a call waits for them.
  const std::vector<LanedCall> lanes = make_lanes(scheme, plan);
  const auto section = [&](int begin, int end) {
    const std::vector<double> ends = end_times(lanes, time.seconds, begin, end);
    return *std::max_element(ends.begin(), ends.end());
  };
  const int end = static_cast<int>(plan.calls.size());
  if (scheme.parts == 1) {
    time.step = section(0, end);
  } else {
    time.step = section(0, plan.body_begin) +
                scheme.parts * section(plan.body_begin, plan.body_end) +
                section(plan.body_end, end);
  }
  return time;
}

}  // namespace adjoint
