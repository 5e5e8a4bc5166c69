// Runs a step a few times and measures it: bytes of every tier, seconds of every call, and the
// memory of the whole process as an independent check. Poison: memory that the plan frees is filled
// with one byte value and, in another pass, with another. A correct plan gives the same bits in all
// passes. A byte that a step writes differs from at least one of the two fillings, so the highest
// written byte is found exactly.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cost/cost.h"
#include "run/random_steps.h"
#include "run/run.h"
#include "run/stage_profile.h"

namespace adjoint {

// The first is a NaN in every floating dtype, the second a large number, which shows what a NaN
// would hide (a maximum, a comparison, an id out of range).
inline constexpr std::byte kPoisons[] = {std::byte{0xff}, std::byte{0x7e}};

// Per tier, the end of the highest byte that was written.
struct Touched {
  Bytes device, host;
};
// Measured by a first step in an arena that was filled with this byte.
Touched touched_by_step(Run& run, RandomSteps& steps, std::byte filling);

struct Measured {
  Bytes touched;             // the end of the highest byte that was really written
  Bytes host_touched = {0};  // the same of the next tier
  // Growth of allocated resident memory, from before the arenas to after the third step.
  Bytes witness = {0};
  // The rest of resident memory: the program and its data before the arenas, and what libraries
  // allocated during a step and freed.
  Bytes library = {0};
  double step_seconds = 0;                // median
  std::vector<double> seconds = {};       // of every timed step
  std::vector<double> call_seconds = {};  // per planned call: median over steps of one execution
  std::vector<double> losses = {};        // of every step from the first
};

struct MeasureOptions {
  int steps = 5;  // timed, after two that are not
  bool poison = true;
  uint64_t seed = 1;
  // Progress: steps done, of how many, and what is being done.
  std::function<void(int64_t, int64_t, const std::string&)> told = nullptr;
};

// Runs on random tokens. Throws a MachineError if the arenas do not fit into free memory, and an
// Error if a pass with poison gives other bits, which means that the plan is wrong.
Measured measure_step(const Scheme& step, const Plan& plan, const MeasureOptions& options = {});

// The same of a step on a mesh, whose ranks run as threads of this process: one answer per rank.
// `witness` and `library` are of the process, so of all ranks together.
std::vector<Measured> measure_ranks(const Scheme& step, const Plan& plan,
                                    const MeasureOptions& options = {});
// Of one rank of a world that runs already, all of which call it; all get the answer of every rank.
std::vector<Measured> measure_ranks(const Communicator& world, const Scheme& step, const Plan& plan,
                                    const MeasureOptions& options = {});

// A pipeline's step, of which every stage has a scheme and a plan of its own.
struct MeasuredPipeline {
  std::vector<Measured> ranks = {};  // of the mesh; call_seconds are of a rank by itself
  MeasuredStages stages = {};
};
// Refuses a GPU, whose calls the host only launches: what they take there is not measured yet.
void check_measurable_stages(Target target);
MeasuredPipeline measure_pipeline(const Schedule& schedule, const std::vector<Scheme>& steps,
                                  const std::vector<Plan>& plans,
                                  const MeasureOptions& options = {});
MeasuredPipeline measure_pipeline(const Communicator& world, const Schedule& schedule,
                                  const std::vector<Scheme>& steps, const std::vector<Plan>& plans,
                                  const MeasureOptions& options = {});

// The first rank's answer, with the most bytes that any rank has written.
Measured most_touched(const std::vector<Measured>& ranks);
// What a rank's collectives take in a step where each is waited for at once, and how much of that
// the step hides behind its other calls: what it takes less than all its calls together.
struct SpokenSeconds {
  double all = 0, hidden = 0;
};
SpokenSeconds seconds_in_collectives(const Scheme& scheme, const Plan& plan,
                                     const Measured& measured);

// Seconds of single calls by key, for the cost model: the mean over equal calls.
Timings timings_of(const Scheme& scheme, const Plan& plan, const std::vector<double>& call_seconds);

// Resident memory of this process. The quick one takes microseconds however large the process is,
// and lags behind by some pages per core; the other one counts the pages.
Bytes resident_memory();
Bytes resident_memory_quickly();

// The median, of an even number the mean of the two in the middle; 0 for an empty list.
double median(std::vector<double> numbers);

// How often a planned call runs in a step.
int times_in_step(const Scheme& scheme, const Plan& plan, int call);

}  // namespace adjoint
