// Times a step that several ranks run together beside the same ranks at work each for itself, on
// the same cores, in turns: what speaking to each other costs. Of a pipeline also each stage by
// itself, from which its schedule's step is simulated.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/step_bench.h"
#include "comm/communicator.h"
#include "report/stage_table.h"

namespace adjoint {

struct RankBenchOptions {
  int rounds = 3;  // each: `steps` steps alone, then as many together
  int steps = 5;
  int warmup = 2;
  int processes = 1;  // that the ranks are
};

// Both are planned for the threads of one rank.
struct RankedStep {
  BenchedStep step;
  Scheme together = {}, alone = {};
  Plan together_plan = {}, alone_plan = {};
  int64_t alone_batch = 1;  // samples of a rank that works for itself
  // Of a pipeline: every stage's step and plan, in place of those together.
  std::optional<PlannedStages> stages = {};
};

struct RankBench {
  BenchedStep step;
  std::string engine;
  int ranks = 1;
  int64_t alone_batch = 1;
  std::vector<double> together = {}, alone = {};  // seconds; each of the slowest rank
  // The same steps in seconds of processor time of a rank, its communicator's thread included:
  // where others use the machine, too, these say more.
  std::vector<double> together_cpu = {}, alone_cpu = {};
  double work = 0, collectives = 0;  // of one step whose calls run one by one, on the first rank
  Bytes planned = {0}, planned_alone = {0};  // of a rank; of a pipeline its largest stage's
  Bytes resident = {0};                      // of the first rank's process, both steps together
  std::optional<StagesAtWork> stages = {};   // of a pipeline

  double median_together() const;
  double median_alone() const;
  // Samples per second together, over those of all ranks that work for themselves; and the same
  // per second of processor time.
  double share() const;
  double cpu_share() const;
};

// All ranks of `world` call it. The answer refers to the stages of `which`.
RankBench bench_ranks(const Communicator& world, const std::string& engine, const RankedStep& which,
                      const RankBenchOptions& options);

nlohmann::json rank_bench_json(const RankBench& bench);
std::string rank_bench_table(const RankBench& bench);

}  // namespace adjoint
