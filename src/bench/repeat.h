// Times a piece of work with Google Benchmark. Its registry, flags and reporters are hidden behind
// this function, which returns the measurements.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace adjoint {

struct Repetitions {
  int count = 5;
  int64_t iterations = 0;     // of the work in a repetition; 0: as many as take min_seconds
  double min_seconds = 0.04;  // long enough for the clock's resolution and for warm caches
};

// Seconds per iteration of the work, one number per repetition. `before` runs before each
// repetition and is not timed.
std::vector<double> time_work(const std::string& name, const std::function<void()>& work,
                              const Repetitions& how,
                              const std::function<void()>& before = nullptr);

}  // namespace adjoint
