// What a search may add to the stack that it was given: how numbers are held, what lives in the
// host tier, and in how many parts the batch comes. A stack that says one of these itself keeps it.
// Laws decide what is allowed: precision is added only where a user allows what approximates.
#pragma once
#include <string>
#include <vector>

#include "plan/looks.h"

namespace adjoint {

// The first of each is "", the stack as it was given. Tiers come in the order of what they move,
// parts in the order of their number.
struct FitCandidates {
  std::vector<std::string> precisions = {""}, tiers = {""}, parts = {""};
};

// `said` is the given stack's step as it is said, `step` the same as it runs: of a mesh, one
// rank's.
FitCandidates candidates_beside(const Stack& given, const Scheme& said, const Scheme& step,
                                const FitOptions& options);

// Of two stacks the one that has the functors of both.
std::string joined(const std::string& a, const std::string& b);

}  // namespace adjoint
