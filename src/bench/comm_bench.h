// Times collectives between ranks, by every algorithm, beside what the library of the engine takes
// for the same work (MPI's own) and what the alpha-beta model says.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi_calls.h"

namespace adjoint {

struct CommBenchOptions {
  std::vector<Bytes> sizes = {{1 << 10}, {1 << 16}, {1 << 20}, {1 << 24}};  // of the whole
  int repetitions = 5;                // of which the median counts
  double seconds = 0.05;              // that a repetition takes about
  const MpiCalls* library = nullptr;  // beside which ours are measured
};

struct CommTiming {
  Collective collective = Collective::kBarrier;
  Bytes whole = {0};
  Algorithm chosen = Algorithm::kExchange;
  std::vector<std::pair<Algorithm, double>> seconds = {};  // of each algorithm
  std::optional<double> library = {};
  double predicted = 0;  // of the chosen one, by the fabric below
  double chosen_seconds() const;
};

struct CommBench {
  std::string engine;
  int ranks = 1;
  std::vector<CommTiming> rows = {};
  Fabric fabric = {};  // fitted to all of them
};

// All ranks of the group come here; what they return is rank 0's clock, the same on all.
CommBench bench_comm(Communicator world, const std::string& engine,
                     const CommBenchOptions& options);

nlohmann::json comm_bench_json(const CommBench& bench);
std::string comm_bench_table(const CommBench& bench);

}  // namespace adjoint
