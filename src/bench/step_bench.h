// Whole steps of training, timed as the trainer runs them: random tokens, the optimizer, clipping,
// no disk and nothing filled in between. What the plan predicted stands beside what was touched.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "run/machine.h"

namespace adjoint {

// How much of how much is done, and what is being done.
using Told = std::function<void(int64_t, int64_t, const std::string&)>;

struct StepBenchOptions {
  int steps = 10;  // timed, after `warmup` that are not
  int warmup = 3;
  bool touched = true;  // find out which bytes are written, by two more steps after the timed ones
  Told told = nullptr;
};

// Which step: what tables and JSON say of it.
struct BenchedStep {
  std::string model, stack, title;
  int64_t batch = 1, context = 1;
  int threads = 1;
  int64_t tokens() const { return batch * context; }
};

struct StepBench {
  BenchedStep step;
  std::vector<double> seconds = {};
  double loss = 0;            // of the last timed step
  double flops = 0;           // that the model asks for
  Dtype dtype = Dtype::kF32;  // that most of its products multiply
  double products = 0;        // FLOPs per second of a large product of it; 0: not measured
  int64_t parameters = 0;
  Bytes predicted = {0}, touched = {0};  // of all tiers
  Bytes resident = {0};                  // the most that the process ever held
  double median_seconds() const;
  double seconds_per_token() const;
  double utilization() const;  // of `products`, in 0..1
};

StepBench bench_step(const BenchedStep& which, const Scheme& step, const Plan& plan,
                     const StepBenchOptions& options);

nlohmann::json step_bench_json(const StepBench& bench);
std::string step_bench_table(const StepBench& bench);

// Rows of a sweep: seconds and FLOPs of a token beside the first row's.
nlohmann::json sweep_json(const std::vector<StepBench>& rows);
std::string sweep_table(const std::vector<StepBench>& rows);

}  // namespace adjoint
