// The structure of a scheme, found and not declared: the chain of repeated blocks, what is inside
// which block, and the roles that objects and linear maps play.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// The chain: states[0] enters the first block and states[l] leaves the l-th, so there is one state
// more than there are blocks. A state is an object that everything on its way to the loss passes
// through, or all but what skips past some blocks; blocks are the pieces between states that
// repeat. Empty where nothing repeats.
struct Chain {
  std::vector<Value> states = {};
  // Per morphism, of every phase, and per object: its block counted from 0; -1 outside the chain.
  // A gradient is in the block of what it is the gradient of. states[l + 1] is in block l. What is
  // made of parameters alone, a concat of weights say, is in the block that reads it, if only one
  // does.
  std::vector<int> block_of_morphism = {}, block_of = {};

  int length() const { return states.empty() ? 0 : static_cast<int>(states.size()) - 1; }
};
Chain find_chain(const Scheme& scheme);

// What a functor made beside a use has the use's path as a prefix: an adapter, say, that was added
// to some blocks only. It is no part of the pattern that repeats.
struct Additions {
  std::vector<bool> is_addition = {};  // per morphism
  std::vector<Value> stands_for = {};  // per object: itself, or the result of the use
};
Additions find_additions(const Scheme& scheme);

// What v is a copy of that was moved between tiers; v itself if it is none.
Value before_moves(const Scheme& scheme, const std::vector<int>& made_by, Value v);

// Per object: does it depend on a step's data? What does not is the same for every sample.
std::vector<bool> depends_on_data(const Scheme& scheme);

}  // namespace adjoint
