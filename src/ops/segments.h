// Attention that keeps documents apart: a query sees keys of its own segment alone.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

// The forward scheme with an input `segments`, i32 as `tokens` is, that every attention reads which
// has no segments yet. An Error says that there is none: nothing else is known to mix positions.
Scheme with_segments(Scheme forward);

}  // namespace adjoint
