// Who grows where an accumulator lies. In one iteration a sum may pass through several calls, each
// of which adds to what the one before it made (chunks of a readout, then the embedding's rows):
// all of them are made in the accumulator's own bytes.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Per object: the object in whose place it is made, on the way from an accumulator's value at the
// beginning of an iteration to its value at the end; -1 for all others, and where one call does it
// all.
std::vector<Value> grown_from(const Scheme& scheme);

}  // namespace adjoint
