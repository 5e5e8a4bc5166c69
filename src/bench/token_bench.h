// Times single tokens of a model that keeps keys and values, beside the time that the memory takes
// to give the weights once: nothing can be faster.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "functors/step_options.h"
#include "plan/plan.h"
#include "run/machine.h"

namespace adjoint {

struct TokenBenchOptions {
  int tokens = 32;  // timed ones, after `warmup` untimed ones
  int warmup = 3;
  int64_t prompt = 0;  // positions before them
};

struct TokenBench {
  std::string title;
  int64_t batch = 1, context = 1;
  std::vector<double> seconds = {};  // of each token of the whole batch
  Bytes weights = {0};               // read by each, of experts those that it may choose
  Bytes kept = {0};                  // keys, values and the like of all positions
  Bytes arena = {0};
  MachinePeak peak = {};
  double median_seconds() const;
  double tokens_per_second() const;
  double of_bandwidth() const;  // the share of the measured bandwidth at which weights were read
};

// `logits` as CachedModel takes them. Parameters are zeros: the memory does not know.
TokenBench bench_tokens(const std::string& title, const Scheme& logits, const StepOptions& step,
                        const PlanOptions& plan, const TokenBenchOptions& options);

nlohmann::json token_bench_json(const TokenBench& bench);
std::string token_bench_table(const TokenBench& bench);

}  // namespace adjoint
