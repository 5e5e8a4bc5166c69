// adjoint bench ranks: a step that ranks run together, beside the same ranks each for itself.
#include "cli/bench_ranks.h"

#include <fmt/format.h>

#include <iostream>

#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "base/file.h"
#include "bench/rank_bench.h"
#include "cli/answer.h"
#include "cli/interrupts.h"
#include "cli/step_flags.h"
#include "comm/mpi.h"
#include "comm/threads.h"
#include "device/parallel.h"
#include "report/schedule_chart.h"
#include "run/machine.h"
#include "run/profile.h"

namespace adjoint {

namespace {

constexpr int64_t kMostRankSteps = 100000;

struct RanksFlags {
  StepFlags step;
  int64_t steps = 5, rounds = 3;
  bool in_order = false;
  bool json = false;
  std::string chart;  // of a pipeline's schedule

  RanksFlags() {
    step.model.model = "ref";
    step.model.batch = 16;
    step.threads = 1;
    step.step.stack = "data_parallel(2)";
  }
};

RankedStep ranked_step(const RanksFlags& flags) {
  StepFlags together = flags.step;
  together.step.on_mesh = true;
  const BoundModel model = together.bound();
  RankedStep ranked;
  ranked.together = together.built(model).scheme;
  if (num_ranks(ranked.together.mesh) < 2) {
    fail("--stack: '", flags.step.step.stack,
         "' has no mesh, so there is one rank; say data_parallel(2), for example");
  }
  // Of samples each rank has its share; what else the mesh cuts, each would do whole.
  const int64_t data = mesh_size(ranked.together.mesh, "data");
  if (flags.step.model.batch % data != 0) {
    fail("--batch: ", flags.step.model.batch, " samples are not shared evenly by ", data,
         " ranks of data");
  }
  StepFlags alone = flags.step;
  alone.model.batch = ranked.alone_batch = flags.step.model.batch / data;
  ranked.alone = alone.built(alone.bound()).scheme;
  PlanOptions options = flags.step.device.plan_options();
  if (options.target != Target::kCpu) {
    fail("bench ranks: ranks are timed on CPUs; train --device cuda runs them on a GPU");
  }
  const Activity activity("planning");
  ranked.alone_plan = make_plan(ranked.alone, options);
  options.overlap = !flags.in_order;
  if (ranked.together.schedule.empty()) {
    if (!flags.chart.empty()) fail("--chart draws a pipeline's schedule, and --stack has none");
    ranked.together_plan = make_plan(ranked.together, options);
  } else {
    ranked.stages = plan_stages(ranked.together, options,
                                {.sheet = sheet_here(Target::kCpu), .threads = num_threads()});
  }
  ranked.step = {.model = model.name(),
                 .stack = flags.step.step.stack,
                 .title = fmt::format("{}, {}, {} a rank", flags.step.describe(model),
                                      flags.step.step.stack, counted(num_threads(), "thread")),
                 .batch = model.batch(),
                 .context = model.context(),
                 .threads = num_threads()};
  return ranked;
}

int run_rank_bench(const RanksFlags& flags) {
  for (const auto& [name, value] :
       {std::pair{"--steps", flags.steps}, std::pair{"--rounds", flags.rounds}}) {
    if (value < 1 || value > kMostRankSteps) {
      fail(name, ": wanted 1 to ", kMostRankSteps, ", found ", value);
    }
  }
  const auto launch = find_launch();
  if (!flags.chart.empty() && (!launch || launch->rank == 0)) {
    AtomicFile probe(flags.chart);  // refused now, not after the run
  }
  if (launch) let_first_rank_tell(launch->rank);
  const RankedStep step = ranked_step(flags);
  const int ranks = num_ranks(step.together.mesh);
  const auto bench = [&](const Communicator& world, const std::string& engine, int processes) {
    std::optional<Activity> activity(std::in_place, "timing ranks", world.rank() == 0);
    const RankBench found = bench_ranks(world, engine, step,
                                        {.rounds = static_cast<int>(flags.rounds),
                                         .steps = static_cast<int>(flags.steps),
                                         .processes = processes});
    activity.reset();
    if (world.rank() > 0) return;
    if (!flags.chart.empty()) {
      write_file_atomically(flags.chart, schedule_chart(*found.stages, step.step.title, engine));
    }
    if (flags.json) {
      print_answer("bench", rank_bench_json(found));
    } else {
      std::cout << step.step.title << ", " << engine << "\n\n" << rank_bench_table(found);
    }
  };
  if (launch) {
    if (launch->ranks != ranks) {
      fail("--stack: its mesh has ", ranks, " ranks, and the launcher started ", launch->ranks);
    }
    run_launched(*launch,
                 [&](const Communicator& world) { bench(world, mpi_calls().library, ranks); });
    return kDone;
  }
  run_ranks(ranks, [&](const Communicator& world) { bench(world, "threads of one process", 1); });
  return kDone;
}

}  // namespace

void add_bench_ranks(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<RanksFlags>();
  CLI::App* ranks = bench.add_subcommand(
      "ranks", "a step that ranks run together, beside the same ranks each for itself");
  flags->step.add_to(*ranks);
  ranks->add_option("--steps", flags->steps, "steps of a round")->capture_default_str();
  ranks->add_option("--rounds", flags->rounds, "rounds, each alone and then together")
      ->capture_default_str();
  ranks->add_flag("--in-order", flags->in_order,
                  "leave collectives where their readers are, to see what hiding them gains");
  ranks->add_option("--chart", flags->chart,
                    "an SVG file of a pipeline's schedule, measured and simulated");
  ranks->add_flag("--json", flags->json, "as JSON");
  ranks->callback([flags, &action] { action = [flags] { return run_rank_bench(*flags); }; });
  ranks->footer(
      "--threads is per rank, and --batch is of all ranks together. Without a launcher ranks are\n"
      "threads of this process. Of a pipeline the step's seconds are compared with the "
      "simulator's,\n"
      "which goes by the slots of every rank alone.\n"
      "Examples:\n"
      "  mpirun -n 2 --bind-to core adjoint bench ranks --batch 16 --stack 'data_parallel(2)'\n"
      "  adjoint bench ranks --stack 'data_parallel(2) | zero(3)' --threads 1 --json\n"
      "  mpirun -n 4 adjoint bench ranks --threads 2 --stack 'pipeline(4, parts=8)' --chart s.svg");
}

}  // namespace adjoint
