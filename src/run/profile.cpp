#include "run/profile.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "comm/gpu_reduction.h"
#include "device/library_threads.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "run/random_steps.h"

namespace adjoint {

namespace {

constexpr int kWarmSteps = 2;
constexpr int kWitnessStep = 3;  // counted from 1
constexpr int kMarkedSteps = 5;  // where timing calls would change how long a step takes
// Two, so that the second reads what the first one updated.
constexpr int kPoisonedSteps = 2;

// Loads threads, the library of products and its code generator before anything is measured.
void load_libraries(Target target) {
  const Scheme tiny = parse_scheme(
      "scheme tiny:\n  input %0 x: f32[b=64, i=64]\n  parameter %1 w: f32[o=64, i=64]\n"
      "  %2 y: f32[b=64, o=64] = linear(%0, %1) @y\n  return %2\n");
  Run run(tiny, make_plan(tiny, {.threads = num_threads(), .target = target}),
          {.reference = false, .poison = false});
  run.step();
  run.synchronize();
  parallel_for(num_threads(), 1, [](int64_t, int64_t, int) {});
}

// Resident memory that is allocated. Freed memory stays with malloc for a while: oneDNN packs
// blocks of every product's operands into memory that it frees after the product.
Bytes held_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
  return resident_memory();
}

// Allocated memory of the device that the arenas are on: the process's, or the GPU's.
Bytes held_memory(Target target) {
  return target == Target::kCpu ? held_memory() : open_gpu().memory - free_gpu_memory();
}

void check_fits(const Plan& plan, int ranks) {
  if (plan.target == Target::kCuda) return;  // a GPU's allocation fails by itself
  check_memory(ranks * plan.footprint(),
               ranks > 1 ? "running this step on all its ranks" : "running this step",
               ": take a smaller --batch, or plan without running");
}

void check_same(const RandomSteps& steps, int number, std::byte poison, double loss, double plain,
                const std::vector<uint64_t>& found, const std::vector<uint64_t>& wanted) {
  const auto wrong = [&](const std::string& what) {
    fail("the plan of this step is wrong, which is a mistake of Adjoint's and not yours: ", what,
         " of step ", number, fmt::format(" when freed memory is filled with {:#x}", int(poison)));
  };
  if (std::bit_cast<uint64_t>(loss) != std::bit_cast<uint64_t>(plain)) {
    wrong(fmt::format("the loss is {} and becomes {}", plain, loss));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    wrong("'" + to_string(steps.object_left(i).source) + "' has other bits at the end");
  }
}

}  // namespace

Bytes resident_memory() {
  // Where the kernel counts pages.
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  int64_t number = 0;
  while (rollup >> word) {
    if (word == "Rss:" && rollup >> number) return {number * 1024};
  }
  return resident_memory_quickly();
}

Bytes resident_memory_quickly() {
  std::ifstream statm("/proc/self/statm");
  int64_t number = 0;
  if (statm >> number >> number) return {number * ::sysconf(_SC_PAGESIZE)};
  return {0};
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<int64_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  if (numbers.size() % 2) return *middle;
  return (*std::max_element(numbers.begin(), middle) + *middle) / 2;
}

int times_in_step(const Scheme& scheme, const Plan& plan, int call) {
  return call >= plan.body_begin && call < plan.body_end ? scheme.parts : 1;
}

Timings timings_of(const Scheme& scheme, const Plan& plan,
                   const std::vector<double>& call_seconds) {
  std::map<std::string, std::pair<double, int>> sums;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    if (plan.calls[at].is_view) continue;
    auto& [sum, count] = sums[call_key(scheme, scheme.morphisms[plan.calls[at].morphism])];
    sum += call_seconds[at];
    ++count;
  }
  Timings timings;
  for (const auto& [key, sum] : sums) timings[key] = sum.first / sum.second;
  return timings;
}

Touched touched_by_step(Run& run, RandomSteps& steps, std::byte filling) {
  // On a CPU poisoning examines memory before it fills it, and counts a written workspace as whole;
  // on a GPU it would hide what was written.
  run.set_poison(run.on_gpu() ? std::nullopt : std::optional(filling));
  run.fill_arena(filling);
  steps.begin();
  steps.feed();
  steps.step();
  return {run.touched(filling), run.touched(filling, Tier::kHost)};
}

namespace {

// What is measured of a stage of a pipeline beside all else.
struct OfStages {
  StageMeasureOptions wanted = {};
  MeasuredStages measured = {};
};

// Of one rank, or of a step that has one. All ranks run as many steps, and wait for each other
// where the memory of the process is looked at, which is that of all of them.
Measured measured_at(const Scheme& step, const Plan& plan, const MeasureOptions& options,
                     Seat* seat, OfStages* stages = nullptr) {
  const auto meet = [&] {
    if (seat) seat->world().barrier().wait();
  };
  const int plain_steps = std::max(kWarmSteps + options.steps, kWitnessStep);
  const bool gpu = plan.target == Target::kCuda;
  // Timing every call would slow a GPU's step down, and let collectives hide behind nothing.
  const bool apart = gpu || seat;
  const bool checked = options.poison && (!gpu || plan.deterministic);  // otherwise bits may vary
  const int passes = options.poison ? static_cast<int>(std::size(kPoisons)) : 0;
  const int all_steps = plain_steps + passes * (checked ? kPoisonedSteps : 1);
  int64_t done = 0;
  const auto tell = [&](const char* what) {
    if (options.told) options.told(++done, all_steps, what);
  };

  meet();
  Measured measured{.touched = {0}, .library = held_memory(plan.target)};
  meet();
  Run run(step, plan, {.reference = false, .poison = false, .seat = seat, .told = options.told});
  RandomSteps steps(run, options.seed);
  steps.begin();
  std::vector<std::vector<double>> calls(plan.calls.size());
  std::vector<std::vector<uint64_t>> hashes;
  std::vector<double> sums;
  for (int i = 0; i < plain_steps; ++i) {
    steps.feed();
    const double seconds = apart ? steps.step() : steps.timed_step(sums);
    measured.losses.push_back(steps.loss());
    if (i + 1 == kWitnessStep) {
      meet();
      const Bytes all = gpu ? held_memory(plan.target) : resident_memory();
      const Bytes held = held_memory(plan.target);
      measured.witness = held - measured.library;
      measured.library += all - held;
      meet();
    }
    if (i < kPoisonedSteps && checked) hashes.push_back(steps.hashes());
    tell("steps");
    if (i < kWarmSteps) continue;
    measured.seconds.push_back(seconds);
    for (size_t at = 0; at < sums.size(); ++at) calls[at].push_back(sums[at]);
  }
  if (stages) {
    // A rank that runs with others waits in its calls for theirs, so its calls are timed alone.
    stages->measured = measure_stages(run, steps, *seat, stages->wanted);
    calls = stages->measured.own_calls;
  }
  for (int i = 0; apart && !stages && i < kMarkedSteps; ++i) {
    steps.feed();
    steps.timed_step(sums);
    for (size_t at = 0; at < sums.size(); ++at) calls[at].push_back(sums[at]);
  }
  measured.step_seconds = median(measured.seconds);
  for (size_t at = 0; at < calls.size(); ++at) {
    const int times = times_in_step(step, plan, static_cast<int>(at));
    measured.call_seconds.push_back(median(calls[at]) / times);
  }

  for (size_t pass = 0; options.poison && pass < std::size(kPoisons); ++pass) {
    const std::byte poison = kPoisons[pass];
    if (checked) {
      run.set_poison(poison);
      run.fill_arena(poison);
      steps.begin();
      for (int i = 0; i < kPoisonedSteps; ++i) {
        steps.feed();
        steps.step();
        check_same(steps, i + 1, poison, steps.loss(), measured.losses[i], steps.hashes(),
                   hashes[i]);
        tell("steps with poison");
      }
    }
    // A GPU's poison overwrites what was written without examining it, so one more step runs
    // without poison.
    const Touched touched = gpu ? touched_by_step(run, steps, poison)
                                : Touched{run.touched(poison), run.touched(poison, Tier::kHost)};
    if (!checked) tell("steps with poison");
    measured.touched = std::max(measured.touched, touched.device);
    measured.host_touched = std::max(measured.host_touched, touched.host);
  }
  for (size_t i = 0; i < measured.losses.size() && options.poison; ++i) {
    if (std::isfinite(measured.losses[i])) continue;
    fail("the loss of step ", i + 1, " on random tokens is ", measured.losses[i],
         ": of such a step nothing can be told");
  }
  return measured;
}

}  // namespace

Measured measure_step(const Scheme& step, const Plan& plan, const MeasureOptions& options) {
  CHECK(step.mesh.empty(), "a step of one rank");
  check_fits(plan, 1);
  load_libraries(plan.target);
  return measured_at(step, plan, options, nullptr);
}

std::vector<Measured> measure_ranks(const Scheme& step, const Plan& plan,
                                    const MeasureOptions& options) {
  if (step.mesh.empty()) return {measure_step(step, plan, options)};
  const int ranks = num_ranks(step.mesh);
  check_fits(plan, ranks);
  load_libraries(plan.target);
  std::vector<Measured> all(ranks);
  run_ranks(ranks,
            [&](Communicator world) {
              const LibraryThreads as_planned(num_threads());
              Seat seat(world, step.mesh);
              MeasureOptions mine = options;
              if (seat.rank() > 0) mine.told = nullptr;
              all[seat.rank()] = measured_at(step, plan, mine, &seat);
            },
            {.memory = memory_of(plan.target)});
  return all;
}

namespace {

// Of all ranks, on each of them.
std::vector<Measured> gathered(const Communicator& world, const Measured& mine) {
  std::vector<double> numbers = {static_cast<double>(mine.touched.count),
                                 static_cast<double>(mine.host_touched.count),
                                 static_cast<double>(mine.witness.count),
                                 static_cast<double>(mine.library.count), mine.step_seconds};
  const auto of_all = gathered(world, numbers), seconds = gathered(world, mine.seconds),
             calls = gathered(world, mine.call_seconds), losses = gathered(world, mine.losses);
  std::vector<Measured> all;
  for (size_t rank = 0; rank < of_all.size(); ++rank) {
    const std::vector<double>& of = of_all[rank];
    const auto bytes = [&](size_t i) { return Bytes{static_cast<int64_t>(of[i])}; };
    all.push_back({.touched = bytes(0),
                   .host_touched = bytes(1),
                   .witness = bytes(2),
                   .library = bytes(3),
                   .step_seconds = of[4],
                   .seconds = seconds[rank],
                   .call_seconds = calls[rank],
                   .losses = losses[rank]});
  }
  return all;
}

}  // namespace

std::vector<Measured> measure_ranks(const Communicator& world, const Scheme& step, const Plan& plan,
                                    const MeasureOptions& options) {
  if (!world.one_process()) load_libraries(plan.target);
  const LibraryThreads as_planned(num_threads());
  Seat seat(world, step.mesh);
  MeasureOptions mine = options;
  if (seat.rank() > 0) mine.told = nullptr;
  return gathered(world, measured_at(step, plan, mine, &seat));
}

void check_measurable_stages(Target target) {
  if (target == Target::kCuda) {
    fail("pipeline: stages on a GPU are trained and not yet measured; measure them on CPUs");
  }
}

MeasuredPipeline measure_pipeline(const Communicator& world, const Schedule& schedule,
                                  const std::vector<Scheme>& steps, const std::vector<Plan>& plans,
                                  const MeasureOptions& options) {
  check_measurable_stages(plans[0].target);
  if (!world.one_process()) load_libraries(plans[0].target);
  const LibraryThreads as_planned(num_threads());
  Seat seat(world, steps[0].mesh);
  const auto stage = static_cast<size_t>(seat.coordinates().at(kStageAxis));
  MeasureOptions mine = options;
  if (seat.rank() > 0) mine.told = nullptr;
  OfStages stages{.wanted = {.steps = options.steps,
                             .slots = schedule.lists[stage].size(),
                             .rounds = rounds_of(steps)}};
  const Measured measured = measured_at(steps[stage], plans[stage], mine, &seat, &stages);
  return {.ranks = gathered(world, measured), .stages = std::move(stages.measured)};
}

MeasuredPipeline measure_pipeline(const Schedule& schedule, const std::vector<Scheme>& steps,
                                  const std::vector<Plan>& plans, const MeasureOptions& options) {
  check_measurable_stages(plans[0].target);
  const int ranks = num_ranks(steps[0].mesh);
  Bytes all{0};
  for (const Plan& plan : plans) all += plan.footprint();
  check_memory(ranks / static_cast<int>(plans.size()) * all, "running this step on all its ranks",
               ": take a smaller --batch, or plan without running");
  load_libraries(plans[0].target);
  MeasuredPipeline measured;
  run_ranks(ranks, [&](const Communicator& world) {
    MeasuredPipeline found = measure_pipeline(world, schedule, steps, plans, options);
    if (world.rank() == 0) measured = std::move(found);
  });
  return measured;
}

Measured most_touched(const std::vector<Measured>& ranks) {
  Measured most = ranks[0];
  for (const Measured& m : ranks) {
    most.touched = std::max(most.touched, m.touched);
    most.host_touched = std::max(most.host_touched, m.host_touched);
  }
  return most;
}

SpokenSeconds seconds_in_collectives(const Scheme& scheme, const Plan& plan,
                                     const Measured& measured) {
  SpokenSeconds spoken;
  double calls = 0;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const double seconds =
        times_in_step(scheme, plan, static_cast<int>(at)) * measured.call_seconds[at];
    calls += seconds;
    if (op_named(scheme.morphisms[plan.calls[at].morphism].op).collective) spoken.all += seconds;
  }
  spoken.hidden = std::clamp(calls - measured.step_seconds, 0.0, spoken.all);
  return spoken;
}

}  // namespace adjoint
