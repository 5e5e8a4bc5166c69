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
    const Lane lane = lane_of(m);
    (lane == Lane::kWork    ? time.work
     : lane == Lane::kRanks ? time.ranks
                            : time.copies) += times * seconds;
    const double flops = times * static_cast<double>(count_flops(call_of(scheme, m)));
    time.flops += flops;
    time.recomputed_flops += times * static_cast<double>(repeated_flops(scheme, m));
  }
  time.step = time.work + time.copies + time.ranks;
  time.ranks_waited = time.ranks;
  const bool copies_hide = costs.sheet.overlaps && time.copies > 0;
  if (!copies_hide && time.ranks == 0) return time;
  // What runs concurrently with the arithmetic costs only the time that a call waits for it.
  std::vector<LanedCall> lanes = make_lanes(scheme, plan);
  if (!copies_hide) {
    for (LanedCall& call : lanes) {
      if (call.lane != Lane::kRanks) call.lane = Lane::kWork;
    }
  }
  const auto step = [&](const std::vector<double>& seconds) {
    const auto section = [&](int begin, int end) {
      const std::vector<double> ends = end_times(lanes, seconds, begin, end);
      return *std::max_element(ends.begin(), ends.end());
    };
    const int end = static_cast<int>(plan.calls.size());
    // On ranks sections meet: what is under way is done before the next one begins.
    if (scheme.parts == 1 && time.ranks == 0) return section(0, end);
    return section(0, plan.body_begin) + scheme.parts * section(plan.body_begin, plan.body_end) +
           section(plan.body_end, end);
  };
  time.step = step(time.seconds);
  if (time.ranks == 0) return time;
  std::vector<double> silent = time.seconds;
  for (size_t at = 0; at < silent.size(); ++at) {
    if (lanes[at].lane == Lane::kRanks) silent[at] = 0;
  }
  time.ranks_waited = std::clamp(time.step - step(silent), 0.0, time.ranks);
  return time;
}

}  // namespace adjoint
