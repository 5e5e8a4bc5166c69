// The order in which morphisms run.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// As written, but a morphism that frees at least as many bytes as it takes runs as soon as it can:
// an update frees its gradient, an activation's last reader frees the activation. State and
// accumulators are overwritten only after all their readers. Prologue, body and epilogue stay
// contiguous.
std::vector<int> freeing_order(const Scheme& scheme);
// As written.
std::vector<int> written_order(const Scheme& scheme);

}  // namespace adjoint
