// What ranks have after two steps, with collectives under way or one call after the other. Tests of
// laws look at every call, so nothing is under way there: these tell whether that is the same.
#pragma once
#include "comm/threads.h"
#include "device/library_threads.h"
#include "device/parallel.h"
#include "functors/stage_step.h"
#include "run/random_steps.h"
#include "scheme/shards.h"

namespace adjoint {

// How the ranks run.
struct RankRun {
  bool overlap = true;      // collectives may be under way
  bool poison = false;      // freed memory is overwritten
  bool one_by_one = false;  // each call is done before the next begins
};

inline Plan plan_of(const Scheme& step, bool overlap) {
  return make_plan(step, {.threads = num_threads(), .overlap = overlap});
}

// Hashes of every rank's state, in order of ranks, each with the step of its stage, whose plans
// these are.
inline std::vector<std::vector<uint64_t>> bits_after(const Scheme& step,
                                                     const std::vector<Plan>& plans,
                                                     const RankRun& how) {
  const int ranks = num_ranks(step.mesh);
  const std::vector<Scheme> steps = steps_of_stages(step);
  std::vector<std::vector<uint64_t>> all(ranks);
  run_ranks(ranks, [&](Communicator world) {
    const LibraryThreads as_planned(num_threads());
    Seat seat(world, step.mesh);
    const size_t stage = steps.size() > 1 ? seat.coordinates().at(kStageAxis) : 0;
    Run run(steps[stage], plans[stage], {.reference = false, .poison = how.poison, .seat = &seat});
    if (how.one_by_one) run.after_call = [](int) {};
    RandomSteps random(run, 3);
    random.begin();
    for (int i = 0; i < 2; ++i) {
      random.feed();
      random.step();
    }
    all[world.rank()] = random.hashes();
  });
  return all;
}

inline std::vector<std::vector<uint64_t>> bits_after(const Scheme& step, const RankRun& how) {
  std::vector<Plan> plans;
  for (const Scheme& each : steps_of_stages(step)) plans.push_back(plan_of(each, how.overlap));
  return bits_after(step, plans, how);
}

}  // namespace adjoint
