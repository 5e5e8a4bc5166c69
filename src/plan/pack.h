// Offsets for storages with lifetimes, so that no two that live together overlap.
#pragma once
#include <vector>

#include "plan/plan.h"

namespace adjoint {

// Places every storage of the tier whose offset is negative at or above `floor`, around those that
// have an offset. `least` is a lower bound on the arena's size.
void pack(std::vector<Storage>& storages, Bytes floor, Bytes least, Tier tier = Tier::kDevice);

}  // namespace adjoint
