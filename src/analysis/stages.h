// Stages of a pipeline: where the chain of blocks is cut so that pieces cost alike, and what of a
// step is made in which piece when only the blocks' pieces were said.
#pragma once
#include <vector>

#include "analysis/structure.h"
#include "scheme/scheme.h"

namespace adjoint {

// Of the forward pass: the blocks of the chain, and what lies before and behind them.
struct ChainCosts {
  std::vector<double> blocks = {};
  double before = 0, behind = 0;
};
ChainCosts chain_costs(const Scheme& scheme, const Chain& chain);

// The blocks at which pieces 2 to n begin, so that the dearest piece is as cheap as can be; of
// equals the most even. Embedding and readout belong to the first and the last piece.
std::vector<int> balanced_cuts(const ChainCosts& costs, int pieces);

// Gives every object of a step its stage (Attributes::stage), from what was said of the blocks. A
// gradient is made where its forward call was, a parameter lies where it is read, its state and its
// update with it. 0 is wherever it is needed: what depends on no parameter is cheap and the same
// everywhere, a parameter that several stages read lies on each of them, and small numbers of the
// whole step (the norm, the rate) are made by all.
Scheme spread_stages(Scheme scheme);

// Per object: whether it is the gradient of a parameter, or a part or a sum of it.
std::vector<bool> parameter_gradients(const Scheme& scheme);

}  // namespace adjoint
