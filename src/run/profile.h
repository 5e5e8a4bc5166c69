// Runs a step a few times and says what it really took: bytes of every tier, seconds of every call,
// and the memory of the whole process as a witness from outside.
// Poison: what the plan frees is filled with one byte and then, in another pass, with another. A
// right plan gives the same bits in all passes; a byte that a step writes differs from one of the
// two fillings at least, so the highest one is found exactly.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cost/cost.h"
#include "run/random_steps.h"
#include "run/run.h"

namespace adjoint {

// The first is a NaN in every floating dtype, the second a large number: what a NaN would hide (a
// maximum, a comparison, an id out of range) the other shows.
inline constexpr std::byte kPoisons[] = {std::byte{0xff}, std::byte{0x7e}};

// The end of the highest byte of every tier that was really written.
struct Touched {
  Bytes device, host;
};
// By a first step in an arena that was filled with this byte.
Touched touched_by_step(Run& run, RandomSteps& steps, std::byte filling);

struct Measured {
  Bytes touched;             // the end of the highest byte that was really written
  Bytes host_touched = {0};  // the same of the next tier
  // Growth of resident memory that somebody holds, from before the arenas to after the third step.
  Bytes witness = {0};
  // The rest of it: the program and what it knew before them, and what libraries took during a step
  // for themselves and gave back.
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
  // How many steps of how many are done, and what is being done.
  std::function<void(int64_t, int64_t, const std::string&)> told = nullptr;
};

// On random tokens. A MachineError when the arenas do not fit into the free memory; an Error when a
// pass with poison gives other bits: the plan is wrong then.
Measured measure_step(const Scheme& step, const Plan& plan, const MeasureOptions& options = {});

// Seconds of single calls by key, as a cost model learns them: the mean of calls that are alike.
Timings timings_of(const Scheme& scheme, const Plan& plan, const std::vector<double>& call_seconds);

// Resident memory of this process.
Bytes resident_memory();

// The upper of the two in the middle; 0 of none.
double median(std::vector<double> numbers);

// How often a planned call runs in a step.
int times_in_step(const Scheme& scheme, const Plan& plan, int call);

}  // namespace adjoint
