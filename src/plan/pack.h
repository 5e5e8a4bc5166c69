// Offsets for storages with lifetimes, so that no two that live together overlap.
#pragma once
#include <vector>

#include "plan/plan.h"

namespace adjoint {

// Places every storage of the tier whose offset is negative above `floor`, beside those that have
// one. `least` is what no packing can go below.
void pack(std::vector<Storage>& storages, Bytes floor, Bytes least, Tier tier = Tier::kDevice);

}  // namespace adjoint
