// Times a piece of work with Google Benchmark, whose registry, flags and reporters stay behind this
// one function: what was measured is returned, and printed by whoever asked.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace adjoint {

struct Repetitions {
  int count = 5;
  int64_t iterations = 0;     // of the work in a repetition; 0: as many as take min_seconds
  double min_seconds = 0.04;  // long enough for the clock and for caches to be as they stay
};

// Seconds of one piece of work, one number per repetition. `before` is not timed, and runs before
// the iterations of each.
std::vector<double> time_work(const std::string& name, const std::function<void()>& work,
                              const Repetitions& how,
                              const std::function<void()>& before = nullptr);

}  // namespace adjoint
