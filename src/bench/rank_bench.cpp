#include "bench/rank_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "comm/seat.h"
#include "device/library_threads.h"
#include "plan/lanes.h"
#include "run/profile.h"

namespace adjoint {

namespace {

constexpr uint64_t kRankSeed = 1;

// Seconds of a step on the rank that takes longest, so that all ranks speak of the same number.
double slowest(const Communicator& world, double mine) {
  std::vector<double> all(world.size());
  world.all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(all)).wait();
  return std::ranges::max(all);
}

// Of this process.
double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// `processes` of the ranks are processes of their own; threads of one are counted together.
void time_steps(const Communicator& world, RandomSteps& steps, int count, int processes,
                std::vector<double>& seconds, std::vector<double>& cpu) {
  for (int i = 0; i < count; ++i) {
    steps.feed();
    world.barrier().wait();
    const double before = cpu_seconds();
    world.barrier().wait();
    seconds.push_back(slowest(world, steps.step()));
    world.barrier().wait();
    cpu.push_back(slowest(world, (cpu_seconds() - before) * processes / world.size()));
    world.barrier().wait();
  }
}

}  // namespace

double RankBench::median_together() const { return median(together); }
double RankBench::median_alone() const { return median(alone); }
double RankBench::share() const {
  const double samples = static_cast<double>(step.batch) / median_together();
  return samples * median_alone() / static_cast<double>(ranks * alone_batch);
}
double RankBench::cpu_share() const {
  const double samples = static_cast<double>(step.batch) / median(together_cpu);
  return samples * median(alone_cpu) / static_cast<double>(ranks * alone_batch);
}

RankBench bench_ranks(const Communicator& world, const std::string& engine, const RankedStep& which,
                      const RankBenchOptions& options) {
  CHECK(num_ranks(which.together.mesh) == world.size(), "a mesh of all ranks");
  const LibraryThreads as_planned(which.step.threads);
  Seat seat(world, which.together.mesh);
  const auto stage = which.stages ? static_cast<size_t>(seat.coordinates().at(kStageAxis)) : 0;
  const Scheme& own = which.stages ? which.stages->steps[stage] : which.together;
  const Plan& own_plan = which.stages ? which.stages->plans[stage] : which.together_plan;
  Bytes planned = own_plan.footprint();
  if (which.stages) {
    for (const Plan& plan : which.stages->plans) planned = std::max(planned, plan.footprint());
  }
  RankBench bench{.step = which.step,
                  .engine = engine,
                  .ranks = world.size(),
                  .alone_batch = which.alone_batch,
                  .planned = planned,
                  .planned_alone = which.alone_plan.footprint()};
  Run together(own, own_plan, {.reference = false, .poison = false, .seat = &seat});
  Run alone(which.alone, which.alone_plan, {.reference = false, .poison = false});
  RandomSteps of_all(together, kRankSeed), of_one(alone, kRankSeed);
  of_all.begin();
  of_one.begin();
  const int processes = options.processes;
  std::vector<double> untimed;
  time_steps(world, of_one, options.warmup, processes, untimed, untimed);
  time_steps(world, of_all, options.warmup, processes, untimed, untimed);
  for (int round = 0; round < options.rounds; ++round) {
    time_steps(world, of_one, options.steps, processes, bench.alone, bench.alone_cpu);
    time_steps(world, of_all, options.steps, processes, bench.together, bench.together_cpu);
  }
  std::vector<double> calls;
  if (which.stages) {
    MeasuredStages measured = measure_stages(together, of_all, seat,
                                             {.steps = options.rounds * options.steps,
                                              .slots = which.stages->schedule.lists[stage].size(),
                                              .rounds = rounds_of(which.stages->steps)});
    for (const std::vector<double>& seconds : measured.own_calls) calls.push_back(median(seconds));
    bench.stages.emplace(*which.stages, std::move(measured));
  } else {
    of_all.feed();
    world.barrier().wait();
    of_all.timed_step(calls);
  }
  for (size_t at = 0; at < calls.size(); ++at) {
    const Morphism& m = own.morphisms[own_plan.calls[at].morphism];
    (lane_of(m) == Lane::kRanks ? bench.collectives : bench.work) += calls[at];
  }
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  bench.resident = {usage.ru_maxrss * 1024};
  return bench;
}

nlohmann::json rank_bench_json(const RankBench& b) {
  nlohmann::json out = {{"model", b.step.model},
                        {"stack", b.step.stack},
                        {"batch", b.step.batch},
                        {"seq", b.step.context},
                        {"threads", b.step.threads},
                        {"engine", b.engine},
                        {"ranks", b.ranks},
                        {"measured_step_s", b.median_together()},
                        {"measured_steps_s", b.together},
                        {"alone_batch", b.alone_batch},
                        {"alone_step_s", b.median_alone()},
                        {"alone_steps_s", b.alone},
                        {"share", b.share()},
                        {"cpu_s", median(b.together_cpu)},
                        {"alone_cpu_s", median(b.alone_cpu)},
                        {"cpu_share", b.cpu_share()},
                        {"work_s", b.work},
                        {"collectives_s", b.collectives},
                        {"peak_bytes", b.planned.count},
                        {"alone_peak_bytes", b.planned_alone.count},
                        {"peak_resident_bytes", b.resident.count}};
  if (b.stages) out["pipeline"] = measured_stages_json(*b.stages);
  return out;
}

std::string rank_bench_table(const RankBench& b) {
  std::string out;
  const auto line = [&](const char* what, const std::string& value, const std::string& note) {
    out += fmt::format("{:<24} {:>14}{}{}\n", what, value, note.empty() ? "" : "  ", note);
  };
  const auto milliseconds = [](double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); };
  const auto spread = [](const std::vector<double>& seconds) {
    const auto [fastest, longest] = std::ranges::minmax(seconds);
    return fmt::format("median of {}; {:.2f} to {:.2f}", seconds.size(), 1e3 * fastest,
                       1e3 * longest);
  };
  line("step together", milliseconds(b.median_together()), spread(b.together));
  line("step alone", milliseconds(b.median_alone()),
       fmt::format("{}; {} samples, all {} ranks at the same time", spread(b.alone), b.alone_batch,
                   b.ranks));
  line("share", fmt::format("{:.3f}", b.share()),
       "samples per second together, over those of ranks that work for themselves");
  line("processor time", milliseconds(median(b.together_cpu)),
       fmt::format("alone {}; share {:.3f}", milliseconds(median(b.alone_cpu)), b.cpu_share()));
  line("calls one by one", milliseconds(b.work + b.collectives),
       fmt::format("of that {} of collectives", milliseconds(b.collectives)));
  line("planned bytes a rank", with_commas(b.planned.count),
       fmt::format("{}alone {}", b.stages ? "of the largest stage; " : "",
                   with_commas(b.planned_alone.count)));
  if (b.stages) out += "\n" + measured_stage_table(*b.stages);
  return out;
}

}  // namespace adjoint
