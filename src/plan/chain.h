// Which tensors of a chain of equal blocks to keep, which to recompute and which to offload, so
// that the step is fastest within a budget of bytes. Exact, by dynamic programming over blocks.
// Written by hand: a general solver (CBC, the judge in the tests) is slower and would be a package
// for users.
//
// Every block takes one option: a set of its tensors that are kept; the rest is recomputed. A state
// between blocks is kept, offloaded or dropped. Blocks between two states that are not dropped form
// a segment, which is recomputed as a whole when the backward reaches it. So in the backward of
// block b the device holds what earlier blocks keep, what was recomputed for earlier blocks of the
// same segment, and b's own work.
#pragma once
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

struct BlockOption {
  int64_t kept = 0;  // bytes from the block's forward to its backward, its state not counted
  int64_t held = 0;  // bytes recomputed for it, until its backward, in a segment of several blocks
  double cost = 0;   // seconds of recomputation
  double through = 0;  // the same if its last state is recomputed, too; at least `cost`
  // Per block: the most bytes during its forward and during its backward, less what earlier blocks
  // and their states hold.
  std::vector<int64_t> forward = {}, backward = {};
};

struct ChainProblem {
  int blocks = 0;
  std::vector<BlockOption> options = {};
  int64_t state = 0;         // bytes of a state
  double state_cost = -1;    // seconds to offload a state and fetch it; below 0: impossible
  int64_t outside_all = 0;   // most bytes while all blocks' tensors are held, less those
  int64_t outside_none = 0;  // most bytes while none are held
};

enum class StateChoice : uint8_t { kKept, kDropped, kAway };

struct ChainChoice {
  std::vector<int> option = {};         // per block
  std::vector<StateChoice> state = {};  // per block: of the state that it leaves; the last is kept
  double cost = 0;
  int64_t peak = 0;
};

// The largest number of bytes at any moment.
int64_t peak_of(const ChainProblem& problem, const ChainChoice& choice);

// The cheapest choice whose peak is within the budget; nothing where there is none.
std::optional<ChainChoice> solve(const ChainProblem& problem, int64_t budget);

// The smallest budget for which there is a choice.
int64_t smallest_budget(const ChainProblem& problem);

}  // namespace adjoint
