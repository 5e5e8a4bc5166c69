// The evaluation that runs beside a step, on the parameters that the step holds.
#pragma once
#include "functors/pipeline.h"

namespace adjoint {

// In the pieces in which that step holds them: its own uses of them might want others, because it
// has no dropout.
Scheme evaluation_beside(const Scheme& step, const Scheme& forward, const Stack& stack,
                         const StepOptions& options);

}  // namespace adjoint
