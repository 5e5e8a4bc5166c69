// Where in the order a group of calls may stand. Each group has one place, after all that it reads
// and before all that reads it, so groups never form a cycle.
#pragma once
#include <optional>
#include <vector>

#include "functors/fuse_groups.h"

namespace adjoint {

// The calls that must move behind the place `at` if groups `a` and `c` were one group there;
// nothing where that cannot be.
std::optional<std::vector<int>> late_readers(const Groups& groups, int a, int c, int at);

}  // namespace adjoint
