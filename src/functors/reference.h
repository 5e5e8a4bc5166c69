// The way to the judge: what a scheme computes in float64.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

// The same scheme as the reference runs it: float64 throughout, fused ops as their meaning. An
// object that is stored in less than float32 is rounded to it.
Scheme to_reference(const Scheme& scheme);
// The same where an object that is stored in float32 is rounded to it, too. Inside of a call
// nothing is rounded. Its distance from the reference is what float32 loses by itself, whoever
// computes it: log(y*y + 1) of a small y has few of its digits left.
Scheme to_rounded_reference(const Scheme& scheme);

}  // namespace adjoint
