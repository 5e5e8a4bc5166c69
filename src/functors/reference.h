// The way to the judge: what a scheme computes in float64.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

// The same scheme as the reference runs it: float64 throughout, fused ops as their meaning. An
// object that is stored in less than float32 is rounded to it.
Scheme to_reference(const Scheme& scheme);

}  // namespace adjoint
