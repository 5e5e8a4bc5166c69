// Times every distinct call of a step (op, constants, types, strides): inside the step, alone in a
// loop on the same buffers and, for products on a CPU, as a bare loop over oneDNN's primitive. The
// floor beside it follows from the machine's measured peak.
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
  double flops = 0, bytes = 0;  // of one call; bytes are operands and results
  double in_step = 0;           // seconds of one call, the mean over all equal calls of the step
  double alone = 0;             // the same, alone in a loop on hot buffers
  std::optional<double> bare = {};
  double floor = 0;   // seconds: FLOPs over the peak or bytes over the bandwidth
  bool more = false;  // the call does more than the bare product
  double step_seconds() const { return static_cast<double>(times) * in_step; }
};

struct OpBench {
  BenchedStep step;
  MachinePeak peak = {};
  double step_seconds = 0;       // on a CPU with every call timed
  std::vector<OpRow> rows = {};  // sorted by seconds in the step, most first
};

struct OpBenchOptions {
  int steps = 5;
  std::string filter = {};  // a regular expression that the call's text must contain; an Error
                            // when it is none, or no call is like it
  Told told = nullptr;
};

OpBench bench_ops(const BenchedStep& which, const Scheme& step, const Plan& plan,
                  const OpBenchOptions& options);

// Sums over calls that are only products: seconds in a step, and in the bare loops.
struct ProductSums {
  double in_step = 0, bare = 0;
  int rows = 0, slow = 0;  // slow: below 90% of the bare loop
};
ProductSums product_sums(const OpBench& bench);

nlohmann::json op_bench_json(const OpBench& bench);
std::string op_bench_table(const OpBench& bench);

}  // namespace adjoint
