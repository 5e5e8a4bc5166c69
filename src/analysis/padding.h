// Samples that pad a batch, so that all parts of it, or the pieces of all ranks, have one size.
// They count for nothing, because their targets are those that a loss ignores.
#pragma once
#include <set>
#include <string_view>
#include <vector>

#include "ops/op_def.h"

namespace adjoint {

// Per object: the targets that losses ignore, of targets and of what they are views of. Samples
// that pad have these, and 0 in everything else.
std::vector<std::set<int64_t>> ignored_targets(const Scheme& scheme);

// Refuses, in the name of `who`, a call of the forward pass that sums over samples and would count
// those that pad the last of several, each a `unit` (part, rank): only an op that is told targets
// leaves samples out, and only targets as they come are known to be padded so.
void check_sums_of_padded(const Morphism& m, std::string_view who, std::string_view unit);
void check_targets_of_padded(const Scheme& scheme, const Morphism& m, std::string_view who,
                             std::string_view unit);

}  // namespace adjoint
