// Times whole training steps as the trainer runs them: random tokens, optimizer, clipping, but no
// disk. The predicted memory is reported beside the memory that was touched.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "run/machine.h"

namespace adjoint {

// Progress: done, of how much, and what is being done.
using Told = std::function<void(int64_t, int64_t, const std::string&)>;

struct StepBenchOptions {
  int steps = 10;  // timed steps, after `warmup` untimed ones
  int warmup = 3;
  bool touched = true;  // measure which bytes are written, by two more steps
  Told told = nullptr;
};

// Which step was timed, for tables and JSON.
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
  double flops = 0;           // of the model
  Dtype dtype = Dtype::kF32;  // of most products' operands
  double products = 0;        // FLOP/s of a large product in that dtype; 0: not measured
  int64_t parameters = 0;
  Bytes predicted = {0}, touched = {0};  // of all tiers
  Bytes resident = {0};                  // the process's largest resident memory
  double median_seconds() const;
  double seconds_per_token() const;
  double utilization() const;  // of `products`, in 0..1
};

StepBench bench_step(const BenchedStep& which, const Scheme& step, const Plan& plan,
                     const StepBenchOptions& options);

nlohmann::json step_bench_json(const StepBench& bench);
std::string step_bench_table(const StepBench& bench);

// Rows of a sweep, with seconds and FLOPs per token relative to the first row.
nlohmann::json sweep_json(const std::vector<StepBench>& rows);
std::string sweep_table(const std::vector<StepBench>& rows);

}  // namespace adjoint
