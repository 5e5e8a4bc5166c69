// The objects that a recomputation or a fetch waits for: those that exist when a stretch of the
// step begins, so that the planner's order cannot run it earlier.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// The objects that enter the stretch that begins with morphism `at`: its operands that the same
// phase makes (in the backward: gradients). If there are none, at the beginning of the backward,
// the last object that earlier phases make.
std::vector<Value> stretch_inputs(const Scheme& scheme, const std::vector<int>& made_by, int at);

}  // namespace adjoint
