// Sums over a whole scheme.
#pragma once
#include <array>

#include "scheme/scheme.h"

namespace adjoint {

int64_t num_parameters(const Scheme& scheme);
// By phase: forward, backward, update.
std::array<int64_t, 3> flops_by_phase(const Scheme& scheme);

}  // namespace adjoint
