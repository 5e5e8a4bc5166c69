// A model in which every document of a row is as if it were alone there: a query sees keys of its
// own segment alone, and positions count from each document's beginning.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

// The forward scheme with an input `segments`, i32 as `tokens` is, that every attention reads which
// has no segments yet, and, where the model looks positions up, an input `positions` for them.
// Rotary positions stay as they are: a query and a key of one document are as far from each other
// as they were. An Error says that the model has no attention: nothing else is known to mix
// positions.
Scheme with_segments(Scheme forward);

}  // namespace adjoint
