// What tells stacks apart that stand below each other: the first one in full, and of every other
// one what differs from the one above it.
#pragma once
#include <string>
#include <vector>

namespace adjoint {

// ["accumulate(8) | bf16", "accumulate(4) | bf16", "bf16"] ->
// ["accumulate(8) | bf16", "accumulate(4) instead of accumulate(8)", "without accumulate(4)"].
// Of long lists of names that a functor is told, only the names that differ: "reside: kept + qkv".
std::vector<std::string> choice_labels(const std::vector<std::string>& stacks);

}  // namespace adjoint
