// adjoint profile: a few steps of training, measured beside what was predicted of them.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/fit_flags.h"
#include "cli/interrupts.h"
#include "cli/pictures.h"
#include "cli/step_flags.h"
#include "comm/at_work.h"
#include "comm/mpi.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "plan/timing.h"
#include "report/profile_folder.h"
#include "report/profile_page.h"
#include "report/schedule_chart.h"
#include "report/stage_table.h"
#include "report/trace.h"
#include "run/machine.h"
#include "train/job.h"
#include "train/late_progress.h"
#include "train/save.h"

namespace adjoint {

namespace {

constexpr int64_t kMostSteps = 10000;

struct ProfileFlags {
  StepFlags step;
  FitFlags fit;
  int64_t steps = 5;
  std::string out = "profile";
  bool json = false;
};

// A step, its plan and what was measured of it; of a pipeline those of its largest stage, beside
// all of them. It stays where it is: what was measured of stages refers to their plans.
struct ProfiledRun {
  ProfiledRun() = default;
  ProfiledRun(const ProfiledRun&) = delete;
  ProfiledRun& operator=(const ProfiledRun&) = delete;

  Scheme step;
  Plan plan;
  Measured measured = {};
  std::vector<Measured> ranks = {};  // each of them
  Bytes of_process = {0};            // planned for all ranks of this process
  double predicted_seconds = 0;
  std::optional<PlannedStages> stages = {};
  std::optional<StagesAtWork> at_work = {};
};

void profile_pipeline(ProfiledRun& run, const Scheme& whole, const PlanOptions& options, int steps,
                      const Communicator* world) {
  {
    const Activity activity("planning");
    run.stages = plan_stages(whole, options,
                             {.sheet = sheet_here(options.target), .threads = options.threads});
  }
  const PlannedStages& stages = *run.stages;
  LateProgress progress("measuring");
  const MeasureOptions wanted{.steps = steps, .told = progress.told()};
  MeasuredPipeline found =
      world ? measure_pipeline(*world, stages.schedule, stages.steps, stages.plans, wanted)
            : measure_pipeline(stages.schedule, stages.steps, stages.plans, wanted);
  run.step = stages.steps[stages.largest()];
  run.plan = stages.plans[stages.largest()];
  run.of_process = run.plan.footprint();
  if (!world) {
    const auto of_each = static_cast<int64_t>(found.ranks.size() / stages.plans.size());
    run.of_process = {0};
    for (const Plan& plan : stages.plans) run.of_process += of_each * plan.footprint();
  }
  run.measured = found.ranks[rank_of_stage(whole.mesh, stages.largest())];
  run.ranks = std::move(found.ranks);
  run.at_work.emplace(stages, std::move(found.stages));
  run.measured.step_seconds = run.at_work->measured.step_seconds();
}

void profile_run(ProfiledRun& run, const Scheme& step, const PlanOptions& options, int steps,
                 const Communicator* world) {
  if (!step.schedule.empty()) return profile_pipeline(run, step, options, steps, world);
  run.step = step;
  {
    const Activity activity("planning");
    run.plan = make_plan(step, options);
  }
  LateProgress progress("measuring");
  const MeasureOptions wanted{.steps = steps, .told = progress.told()};
  run.ranks =
      world ? measure_ranks(*world, step, run.plan, wanted) : measure_ranks(step, run.plan, wanted);
  run.of_process = (world ? 1 : num_ranks(step.mesh)) * run.plan.footprint();
  run.measured = most_touched(run.ranks);
}

// `world`: the ranks that a launcher started; none: ranks are threads of this process.
void profile(ProfileFlags flags, const Communicator* world) {
  if (!world || world->rank() == 0) check_profile_folder(flags.out);
  BoundModel model = flags.step.bound();
  std::string why;
  if (flags.fit.wanted()) {
    // What is chosen is for the device that it runs on, and for the kernels that it runs with.
    const PlanOptions planned = flags.step.device.plan_options();
    if (planned.target == Target::kCuda && flags.fit.wish.profile.empty()) {
      flags.fit.wish.device = sheet_here(planned.target).name;
    }
    flags.step.step.deterministic = planned.deterministic;
    const auto ranks = world ? std::optional(*world) : std::nullopt;
    const AtWork at_work(ranks, -1, "planning");
    flags.step.step.stack = found_by_first_rank(ranks, [&] {
      const Chosen chosen = flags.fit.choose(model, flags.step.step);
      why = chosen.why;
      return chosen.point.stack;
    });
  }
  const BuiltStep built = flags.step.built(model);
  if (!world || world->rank() == 0) StepFlags::warn_of(built);
  const bool staged = !built.scheme.schedule.empty();
  if (world) check_mesh(built.scheme.mesh, world->size());
  if (!world) share_cores(flags.step.threads, num_ranks(built.scheme.mesh));
  ProfiledRun run;
  profile_run(run, built.scheme, flags.step.device.plan_options(), static_cast<int>(flags.steps),
              world);
  if (world && world->rank() > 0) return;
  const Scheme& step = run.step;
  const Plan& plan = run.plan;
  const MachinePeak peak = [&] {
    const Activity activity("measuring the machine");
    return measure_machine(plan.target);
  }();
  Costs costs = costs_on(measured_sheet(peak), peak.threads, product_table());
  costs.deterministic = plan.deterministic;
  if (staged) {
    time_stages(*run.stages, costs);
    run.predicted_seconds = run.stages->simulated.seconds;
  } else {
    run.predicted_seconds = predict_time(step, plan, costs).step;
  }
  const Profile profile{
      .step = {.model = model.name(),
               .fingerprint = fingerprint(without_randomness(model.forward(1, model.context()))),
               .title = flags.step.describe(model),
               .batch = model.batch(),
               .context = model.context(),
               .stack = flags.step.step.stack,
               .optimizer = flags.step.step.optimizer,
               .clip = flags.step.step.clip},
      .scheme = step,
      .plan = plan,
      .measured = run.measured,
      .ranks = run.ranks,
      .peak = peak,
      .predicted_seconds = run.predicted_seconds,
      .fabric = costs.sheet.fabric,
      .of_process = run.of_process,
      .stages = run.at_work ? &*run.at_work : nullptr,
      .processes = world != nullptr};
  const std::string title = stack_title(profile.step.stack);
  const ChartedStep charted{
      .title = title,
      .scheme = step,
      .plan = plan,
      .seconds = profile.measured.call_seconds,
      .clock = fmt::format("measured, {} thread{}", peak.threads, peak.threads == 1 ? "" : "s")};
  const std::string chart =
      memory_chart(chart_of(profile.step.title, "live memory over one step", {charted}));
  std::vector<Picture> pictures = {{"Memory over the step", chart}};
  std::vector<ProfileFile> files = {
      {"memory.svg", chart},
      {"trace.json", chrome_trace(step, plan,
                                  {.title = profile.step.title + ", " + title,
                                   .seconds = profile.measured.call_seconds})}};
  if (staged) {
    const std::string schedule =
        schedule_chart(*run.at_work, profile.step.title,
                       fmt::format("{} a rank, {}", counted(peak.threads, "thread"),
                                   world ? "processes" : "one process"));
    pictures.insert(pictures.begin(), {"The schedule, measured and simulated", schedule});
    files.push_back({"schedule.svg", schedule});
  }
  files.push_back({"index.html", profile_page(profile, pictures)});
  files.push_back({"profile.json", full_profile_json(profile).dump(1) + "\n"});
  write_profile(flags.out, files);
  if (flags.json) {
    nlohmann::json out = profile_json(profile);
    out["stack"] = profile.step.stack;
    out["model"] = profile.step.model;
    print_answer("profile", std::move(out));
    return;
  }
  std::cout << profile.step.title << "\n";
  if (!why.empty()) std::cout << why;
  std::cout << "\n" << profile_table(profile);
  std::cout << fmt::format("\nwritten to {}: index.html, memory.svg, {}trace.json, profile.json\n",
                           flags.out, staged ? "schedule.svg, " : "");
}

int run(ProfileFlags flags) {
  if (flags.steps < 1 || flags.steps > kMostSteps) {
    fail("--steps: wanted 1 to ", kMostSteps, ", found ", flags.steps);
  }
  flags.fit.check(flags.fit.wanted());
  if (!flags.fit.wanted() && !flags.fit.wish.profile.empty()) {
    fail("--profile goes with --fit: nothing else here is predicted by it");
  }
  const auto launch = find_launch();
  if (!launch || launch->ranks == 1) {
    profile(flags, nullptr);
    return kDone;
  }
  let_first_rank_tell(launch->rank);
  run_launched(*launch, [&](const Communicator& world) {
    int& ranks = flags.step.step.ranks;
    if (ranks != 0 && ranks != launch->ranks) {
      fail("--ranks: the launcher started ", launch->ranks, " ranks, found ", ranks);
    }
    ranks = launch->ranks;
    if (flags.step.threads == 0) flags.step.threads = threads_of_ranks(world);
    profile(flags, &world);
  });
  return kDone;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("profile", "run a few steps: bytes and times, measured beside predicted");
  auto flags = std::make_shared<ProfileFlags>();
  flags->step.add_to(*command);
  flags->step.step.on_mesh = true;  // all ranks run, as threads or as a launcher's processes
  flags->step.device.add_to(*command);
  flags->fit.add_to(*command);
  command->add_option("--steps", flags->steps, "steps that are timed")->capture_default_str();
  command->add_option("--out", flags->out, "folder for the page, the trace and the numbers")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint profile --model char --batch 12\n"
      "  adjoint profile --model char --batch 12 --stack 'pipeline(2, parts=4)' --threads 1\n"
      "  mpirun -n 2 adjoint profile --model char --batch 12 --stack 'pipeline(2, parts=4)'\n"
      "  adjoint profile --model char --batch 12 --stack 'checkpoint(every=2)' --out with");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
