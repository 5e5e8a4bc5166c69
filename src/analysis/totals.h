// Sums over a whole scheme.
#pragma once
#include <array>

#include "scheme/scheme.h"

namespace adjoint {

int64_t num_parameters(const Scheme& scheme);
// What a call computes that the step has computed before: all of what recomputation repeats, and
// what `fuse` says of one that it joined to others.
int64_t repeated_flops(const Scheme& scheme, const Morphism& m);
// By phase: forward, backward, update. Large models count past what 64 bits hold.
std::array<double, 3> flops_by_phase(const Scheme& scheme);

}  // namespace adjoint
