// What the functors of a stack found and did, for people.
#pragma once
#include <string>
#include <vector>

#include "functors/functor.h"

namespace adjoint {

// One line per functor: name, law, matches by kind, and how many morphisms it left.
std::string stack_table(const std::vector<Applied>& applied);

// By source: the lines of `after` that `before` lacks (+), those that it has no more (-), and those
// that differ (~, the new one).
std::string scheme_difference(const Scheme& before, const Scheme& after);

}  // namespace adjoint
