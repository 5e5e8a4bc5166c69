#include "functors/stage_schedule.h"

#include <algorithm>

#include "analysis/stages.h"
#include "base/error.h"
#include "ops/op_def.h"
#include "schedules/automatic.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

bool trains(const Scheme& scheme) {
  return std::any_of(scheme.morphisms.begin(), scheme.morphisms.end(),
                     [](const Morphism& m) { return m.phase == Phase::kBackward; });
}

// What a search for a schedule goes by: operations of each chunk, which every rank reckons alike,
// and nothing for messages.
SlotTimes reckoned_times(const Scheme& whole, int chunks) {
  SlotTimes times = equal_times(chunks, 0, 0, 0);
  const std::vector<bool> is_gradient = parameter_gradients(whole);
  for (const Morphism& m : whole.morphisms) {
    const int stage = whole[m.outputs[0]].attributes.stage;
    if (m.section != Section::kBody || stage == 0) continue;
    const bool weights =
        std::all_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return is_gradient[v]; });
    const bool forward = m.phase == Phase::kForward && m.epoch == 0;
    std::vector<double>& kind = forward ? times.forward : weights ? times.weight : times.backward;
    kind[stage - 1] += 1e-12 * static_cast<double>(count_flops(call_of(whole, m)));
  }
  return times;
}

}  // namespace

bool has_stages(const Scheme& scheme) {
  return mesh_size(scheme.mesh, kStageAxis) > 1 && !scheme.schedule.empty();
}

Schedule schedule_of(const Scheme& whole) {
  const int ranks = mesh_size(whole.mesh, kStageAxis);
  const int chunks = ranks * whole.chunks;
  const bool is_text = whole.schedule.find('\n') != std::string::npos;
  const Schedule schedule = is_text ? parse_schedule(whole.schedule, "schedule")
                            : is_searched(whole.schedule)
                                ? search_schedule(whole.schedule, ranks, whole.parts, whole.chunks,
                                                  reckoned_times(whole, chunks))
                                : make_schedule(whole.schedule, ranks, whole.parts, whole.chunks);
  if (schedule.ranks != ranks || schedule.parts != whole.parts || schedule.chunks != chunks) {
    fail("pipeline: the schedule '", schedule.name, "' is for ", schedule.ranks, " stages, ",
         schedule.parts, " parts and ", schedule.chunks, " chunks, and the step has ", ranks, ", ",
         whole.parts, " and ", chunks);
  }
  check_schedule(schedule);
  return trains(whole) ? schedule : forward_only(schedule);
}

}  // namespace adjoint
