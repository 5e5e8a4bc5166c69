// What is alive after each block of the chain, as a product: x * t^3 is the state that goes on and
// all that three blocks keep for their backward pass. Read off the plan of the real step; of a
// pipeline off each rank's, after every slot of its list and part by part.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "schedules/schedule.h"

namespace adjoint {

// What the bytes of a factor are for.
enum class FactorKind : uint8_t {
  kState,       // x: a state of the chain whose block has not run yet
  kCheckpoint,  // ch: a state that is kept while its block has to be recomputed
  kBlock,       // t: all that one block keeps for its backward pass, its state included
  kSent,        // y: a state that another rank goes on with
  kGradient,    // dx: gradients of activations
  kOutside,     // r: activations that are in no block
};

struct Factor {
  FactorKind kind = FactorKind::kState;
  int index = 0;  // of a state from 0, of a block from 1; else 0
  Bytes bytes = {0};
};
using Factors = std::vector<Factor>;  // none twice; checkpoints and blocks in order
Bytes total(const Factors& factors);

enum class Pass : uint8_t { kForward, kAgain, kBackward };

// What is alive between the last call of a block's pass and the call after it.
struct MemoryState {
  Pass pass = Pass::kForward;
  // Blocks are counted from 1, so that block l makes the state x_l. Forward through block 0 is all
  // that comes before the chain; backward through the block behind the last is all behind it.
  int block = 0;
  int place = 0;  // of that last call
  Factors factors = {};
  Bytes most = {0};  // of activations and their gradients at one call since the row before
};

// `said`: the step as far as attributes are said (said_step), of which the chain is known. Left out
// are parameters, their gradients, state, data and workspaces. In the order of the plan.
std::vector<MemoryState> memory_states(const Scheme& said, const Scheme& step, const Plan& plan);

// Of one rank of a pipeline: what is alive after a slot.
struct SlotState {
  int place = 0;
  Bytes most = {0};                 // at one call of the slot
  std::vector<Factors> parts = {};  // per part of the batch
  Factors of_no_part = {};          // what all parts share
};
// `whole`: the step of all stages; `step` and `list`: those of the rank.
std::vector<SlotState> slot_states(const Scheme& said, const Scheme& whole, const Scheme& step,
                                   const Plan& plan, const std::vector<Slot>& list);

// All of it as text: rows, or a grid per rank, and what the letters stand for. `step` is a whole
// step, planned here.
std::string memory_states_table(const Scheme& said, const Scheme& step, const PlanOptions& options);
// The same for machines: {"letters", "rows"}, or {"letters", "ranks"} of a pipeline (docs/json.md).
nlohmann::json memory_states_json(const Scheme& said, const Scheme& step,
                                  const PlanOptions& options);

}  // namespace adjoint
