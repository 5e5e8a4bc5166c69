// Which gradients are summed use by use.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Per object: whether it is a gradient that was said to be summed use by use, or what such a one is
// made of: its terms, and of a matrix that is itself made of parameters (of centres, or of a frozen
// one and what is added to it) the matrix's gradient with its terms.
std::vector<bool> summed_use_by_use(const Scheme& scheme);

}  // namespace adjoint
