// Runs two steps of a scheme by the CPU's kernels and hashes results and state, which are equal if
// all bits are.
#pragma once
#include <vector>

#include "device/parallel.h"
#include "plan/plan.h"
#include "run/random_steps.h"

namespace adjoint {

inline std::vector<std::vector<uint64_t>> left_behind(const Scheme& step) {
  Run run(step, make_plan(step, {.threads = num_threads()}), {.reference = false, .poison = true});
  RandomSteps random(run, 5);
  random.begin();
  std::vector<std::vector<uint64_t>> all;
  for (int i = 0; i < 2; ++i) {
    random.feed();
    random.step();
    all.push_back(random.hashes());
  }
  return all;
}

}  // namespace adjoint
