// What the ranks of a mesh hold in common, looked at over all of them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "run/run.h"

namespace adjoint {

// Compares parameters and state that several ranks hold, or the same piece of which. A difference
// is a MachineError that names the first object, the step and the ranks whose bits are not those
// of most. All ranks call it.
void check_replicas(const Run& run, int64_t step);

// The norm of each list of objects, with every element counted once, whoever holds it. All ranks
// call it, and get the same.
std::map<std::string, double> norms_over_ranks(
    const Run& run, const std::map<std::string, std::vector<Value>>& by_name);

}  // namespace adjoint
