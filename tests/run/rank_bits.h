// What ranks have after two steps, with collectives under way or one call after the other. Tests of
// laws look at every call, so nothing is under way there: these tell whether that is the same.
#pragma once
#include "comm/threads.h"
#include "device/library_threads.h"
#include "device/parallel.h"
#include "run/random_steps.h"

namespace adjoint {

inline Plan plan_of(const Scheme& step, bool overlap) {
  return make_plan(step, {.threads = num_threads(), .overlap = overlap});
}

// Hashes of every rank's state, in order of ranks.
inline std::vector<std::vector<uint64_t>> bits_after(const Scheme& step, const Plan& plan,
                                                     bool poison, bool one_by_one) {
  const int ranks = num_ranks(step.mesh);
  std::vector<std::vector<uint64_t>> all(ranks);
  run_ranks(ranks, [&](Communicator world) {
    const LibraryThreads as_planned(num_threads());
    Seat seat(world, step.mesh);
    Run run(step, plan, {.reference = false, .poison = poison, .seat = &seat});
    if (one_by_one) run.after_call = [](int) {};
    RandomSteps steps(run, 3);
    steps.begin();
    for (int i = 0; i < 2; ++i) {
      steps.feed();
      steps.step();
    }
    all[world.rank()] = steps.hashes();
  });
  return all;
}

}  // namespace adjoint
