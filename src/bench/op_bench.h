// Every distinct call of a step (op, constants, types, strides): what it takes inside the step,
// what it takes alone on the same buffers again and again, and, of a product on a CPU, what a bare
// loop over oneDNN's primitive takes; beside the floor that the machine's measured peak gives it.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/step_bench.h"

namespace adjoint {

struct OpRow {
  std::string call;  // linear f32 8x512x256, 768x256, 768 -> 8x512x768
  std::string op;
  int64_t times = 0;            // in a step
  double flops = 0, bytes = 0;  // of one; bytes are operands and results
  double in_step = 0;           // seconds of one, the mean over the step's calls that are alike
  double alone = 0;             // the same on hot buffers
  std::optional<double> bare = {};
  double floor = 0;   // seconds: FLOPs over the peak or bytes over the bandwidth
  bool more = false;  // it does more than the product that `bare` is
  double step_seconds() const { return static_cast<double>(times) * in_step; }
};

struct OpBench {
  BenchedStep step;
  MachinePeak peak = {};
  double step_seconds = 0;       // on a CPU with a clock at every call
  std::vector<OpRow> rows = {};  // the one with most seconds in the step first
};

struct OpBenchOptions {
  int steps = 5;
  std::string filter = {};  // a regular expression that the call's text must contain; an Error
                            // when it is none, or no call is like it
  Told told = nullptr;
};

OpBench bench_ops(const BenchedStep& which, const Scheme& step, const Plan& plan,
                  const OpBenchOptions& options);

// Of calls that are products and nothing else: seconds in a step, and of the bare loops.
struct ProductSums {
  double in_step = 0, bare = 0;
  int rows = 0, slow = 0;  // slow: below 90% of the bare loop
};
ProductSums product_sums(const OpBench& bench);

nlohmann::json op_bench_json(const OpBench& bench);
std::string op_bench_table(const OpBench& bench);

}  // namespace adjoint
