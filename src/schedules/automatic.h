// The automatic zero-bubble schedule: lists that are searched for with the times of a model and a
// limit on memory.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "schedules/simulate.h"

namespace adjoint {

// One chunk per rank. `memory_limit`: activations in flight on a rank, in parts. A part counts as
// one from its forward slot to its backward slot, and from there to its weights' gradients as the
// share of its bytes that is still kept (all of them where `times` does not say). Never slower than
// zero_bubble where that fits into the limit, nor than zb_h2; what is compared is what a step
// costs: `seconds` with a barrier, else `own_seconds`.
Schedule automatic_zero_bubble(int ranks, int parts, const SlotTimes& times, double memory_limit);

// Schedules that are searched for by name, for one chunk a rank: zb_1p and zb_2p, with room for as
// many parts as there are ranks, or twice as many.
bool is_searched(std::string_view name);
std::vector<std::string> searched_names();
Schedule search_schedule(std::string_view name, int ranks, int parts, int per_rank,
                         const SlotTimes& times);

}  // namespace adjoint
