// The order in which morphisms run.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Which morphisms must run before which: makers before readers and before those that only wait
// (`after`), and readers of state, or of an accumulator, before its writer.
struct Dependencies {
  std::vector<std::vector<int>> after;  // per morphism: those that wait for it
  std::vector<int> waits_for;           // per morphism: how many it still waits for
};
Dependencies dependencies(const Scheme& scheme);

// As written, but a morphism that frees at least as many bytes as it takes runs as soon as it can:
// an update frees its gradient, an activation's last reader frees the activation. State and
// accumulators are overwritten only after all their readers. Prologue, body and epilogue stay
// contiguous.
std::vector<int> freeing_order(const Scheme& scheme);
// As written, but sums over ranks, and updates that free at least as many bytes as they take, run
// as soon as they can. The passes themselves run as written: where the last reader of a gathered
// weight runs as soon as it can, it runs ahead of the gradients of all weights.
std::vector<int> settling_order(const Scheme& scheme);
// As written.
std::vector<int> written_order(const Scheme& scheme);

}  // namespace adjoint
