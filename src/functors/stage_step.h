// The finished step of all stages of a pipeline  ->  what one of its ranks does: the calls of its
// chunks, once for every part of the batch, laid out in the order of its schedule.
#pragma once
#include <vector>

#include "schedules/schedule.h"
#include "scheme/scheme.h"

namespace adjoint {

// The schedule that a scheme with an axis `stage` says; forward only where it has no gradients.
// Refuses one that does not fit the scheme's parts, ranks and chunks.
Schedule schedule_of(const Scheme& whole);

// Refuses a finished step that stages could not run.
void check_stages(const Scheme& whole);

// Of the rank at `stage` of the mesh's axis of that name. A scheme without that axis is returned as
// it is.
Scheme step_of_stage(const Scheme& whole, int stage);
std::vector<Scheme> steps_of_stages(const Scheme& whole);  // of all of them

}  // namespace adjoint
