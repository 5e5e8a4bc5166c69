// A body as people write it: (x - sum(x)/768)*weight + bias, with `where` for what several results
// share.
#pragma once
#include <string>
#include <vector>

#include "body/body.h"

namespace adjoint {

// `names`: what operands are called; those past the end are a, b, c, ...
std::string algebra(const Body& body, const std::vector<std::string>& names);

}  // namespace adjoint
