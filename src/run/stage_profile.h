// A pipeline's step by the clock: in which slot every rank is when, and how long the same slots
// take on each rank by itself, with the messages that it once received. The first is to be compared
// with what the simulator makes of the second.
#pragma once
#include <vector>

#include "comm/seat.h"
#include "run/random_steps.h"
#include "schedules/simulate.h"

namespace adjoint {

// Seconds of a rank's work, without its waits for messages.
struct StageSeconds {
  double before = 0;                // its first slot
  std::vector<double> slots = {};   // in the order of its list
  std::vector<double> rounds = {};  // of the step's end
};

struct MeasuredStages {
  // Per stage; of a mesh with other axes the stages of its first rank's column.
  std::vector<MeasuredWalk> together = {};  // the step whose seconds are the median
  std::vector<StageSeconds> alone = {};     // the median of several steps
  std::vector<double> seconds = {};         // of every step together, on the slowest rank
  Fabric messages = {};  // between neighbours, to a rank that has waited for a slot's time
  double beside = 0;     // what a slot takes longer while such a message is under way
  // Of this rank by itself, per planned call: its seconds in every step.
  std::vector<std::vector<double>> own_calls = {};

  double step_seconds() const;  // the median
};

// A place in the order of a rank's step: before its slots, in one of them (counted from 0), or in a
// round of the end.
struct PlaceInStep {
  Section section = Section::kPrologue;
  size_t number = 0;
};
PlaceInStep place_in_step(const Morphism& morphism);
size_t rounds_of(const std::vector<Scheme>& steps);  // of all stages

// When a rank was at work in each of its slots, given when it was in each of its calls. What a slot
// waits for is taken out of it, so that a slot ends when its last call does, and begins as much
// earlier as it worked.
MeasuredWalk walk_of(const Scheme& step, const Plan& plan, const std::vector<CallSpan>& calls,
                     size_t slots, size_t rounds);

// The first rank of a mesh that is at this stage: the one whose other coordinates are 0.
size_t rank_of_stage(const std::vector<MeshAxis>& mesh, size_t stage);

struct StageMeasureOptions {
  int steps = 5;                 // of each kind, after one that is not timed
  size_t slots = 0, rounds = 0;  // of this rank's stage
};
// All ranks of the seat's world call it, each with the run of its stage, which has done a step. The
// answer is the same on all of them but for `own_calls`.
MeasuredStages measure_stages(Run& run, RandomSteps& steps, Seat& seat,
                              const StageMeasureOptions& options);

// Every rank's numbers, on all ranks.
std::vector<std::vector<double>> gathered(const Communicator& world,
                                          const std::vector<double>& mine);

}  // namespace adjoint
