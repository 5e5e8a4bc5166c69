// What the functors of a stack found and did, for people.
#pragma once
#include <string>
#include <vector>

#include "functors/pipeline.h"

namespace adjoint {

// One line per functor: name, law, matches by kind, and how many morphisms it left.
std::string stack_table(const std::vector<Applied>& applied);

// The difference of two schemes, by source: lines that were added (+), removed (-) or changed (~,
// with the new line).
std::string scheme_difference(const Scheme& before, const Scheme& after);

}  // namespace adjoint
