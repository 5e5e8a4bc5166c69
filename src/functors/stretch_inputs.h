// What holds a recomputation or a fetch back: the objects that exist when a stretch of the step
// begins, so that an order that follows data alone cannot run it earlier.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// What enters the stretch that begins with morphism `at`: its operands that its own phase makes, in
// the backward the gradients. Where there are none (the backward's beginning), the last that the
// earlier phases make before it.
std::vector<Value> stretch_inputs(const Scheme& scheme, const std::vector<int>& made_by, int at);

}  // namespace adjoint
