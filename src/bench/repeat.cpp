#include "bench/repeat.h"

#include <benchmark/benchmark.h>

#include "base/error.h"

namespace adjoint {

namespace {

// Collects the seconds per iteration of every repetition.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;  // the caller computes means and medians
      seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
    }
  }
  std::vector<double> seconds;
};

}  // namespace

std::vector<double> time_work(const std::string& name, const std::function<void()>& work,
                              const Repetitions& how, const std::function<void()>& before) {
  benchmark::ClearRegisteredBenchmarks();
  auto* timed = benchmark::RegisterBenchmark(name.c_str(), [&](benchmark::State& state) {
    if (before) before();
    for (auto _ : state) work();
  });
  timed->UseRealTime()->Repetitions(
      how.count);  // wall time, because the work has threads of its own
  if (how.iterations > 0) {
    timed->Iterations(how.iterations);
  } else {
    timed->MinTime(how.min_seconds);
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector, "all");
  benchmark::ClearRegisteredBenchmarks();
  CHECK(static_cast<int>(collector.seconds.size()) == how.count, "every repetition was reported");
  return collector.seconds;
}

}  // namespace adjoint
