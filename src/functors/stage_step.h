// The finished step of all stages of a pipeline  ->  what one of its ranks does: the calls of its
// chunks, once for every part of the batch, laid out in the order of its schedule.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Of the rank at `stage` of the axis of stages. A scheme without stages is returned as it is.
Scheme step_of_stage(const Scheme& whole, int stage);
std::vector<Scheme> steps_of_stages(const Scheme& whole);  // of all of them

}  // namespace adjoint
