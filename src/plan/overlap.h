// Where collectives stand in an order, so that they are under way while other calls run.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Whether a step has collectives of several ranks.
bool speaks_to_ranks(const Scheme& scheme);
// Whether it gathers what it holds in pieces from step to step.
bool fetches_state(const Scheme& scheme);

// The same order, but for these; an order without collectives of several ranks stays as it is. The
// unit is a stretch: consecutive calls of one section, phase and block of the chain.
//   What is gathered of state alone (the parameters of zero(3)) begins one stretch ahead: where its
//   reader stands, but in the stretch before.
//   A sum over ranks begins as soon as its terms are there, and calls that only updates wait for
//   (squares for the norm) read it one stretch later.
//   What is gathered of such a sum begins where the sum may be read; between updates, one call
//   ahead.
// So about a block's parameters and a block's gradients are under way beside those in use.
std::vector<int> overlapped(const Scheme& scheme, std::vector<int> order);

}  // namespace adjoint
