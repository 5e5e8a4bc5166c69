// A step that is cut into stages, as a search sees it: planned for every stage, the bytes of the
// largest one and the seconds of all of them together.
#pragma once
#include "plan/looks.h"

namespace adjoint {

// The step, plan and time of the stage whose plan has the most bytes; of its time, the seconds of
// the step are those that the schedule gives, and FLOPs the most of any stage.
TimedStep timed_stages(const Scheme& whole, const PlanOptions& options, const Costs& costs);

}  // namespace adjoint
