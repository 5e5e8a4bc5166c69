// The order in which morphisms run.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// As written, but whatever frees at least as many bytes as it takes runs as soon as it can: a
// gradient dies in its update, an activation in its last reader. State is overwritten only after
// all its readers.
std::vector<int> freeing_order(const Scheme& scheme);
// As written.
std::vector<int> written_order(const Scheme& scheme);

}  // namespace adjoint
