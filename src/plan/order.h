// The order in which morphisms run.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// As written, but whatever frees at least as many bytes as it takes runs as soon as it can: a
// gradient dies in its update, an activation in its last reader. State and accumulators are
// overwritten only after all their readers. Prologue, body and epilogue stay contiguous.
std::vector<int> freeing_order(const Scheme& scheme);
// As written.
std::vector<int> written_order(const Scheme& scheme);

}  // namespace adjoint
