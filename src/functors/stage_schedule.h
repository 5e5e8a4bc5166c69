// The schedule of a step that is cut into stages.
#pragma once
#include "schedules/schedule.h"
#include "scheme/scheme.h"

namespace adjoint {

// Whether its ranks run different steps (stage_step.h), in the order of a schedule.
bool has_stages(const Scheme& scheme);

// The schedule that a scheme with stages says; forward only where it has no gradients. Refuses one
// that does not fit the scheme's parts, ranks and chunks.
Schedule schedule_of(const Scheme& whole);

}  // namespace adjoint
