// adjoint profile: a few steps of training, measured beside what was predicted of them.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/fit_flags.h"
#include "cli/pictures.h"
#include "cli/step_flags.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "plan/timing.h"
#include "report/profile_folder.h"
#include "report/profile_page.h"
#include "report/trace.h"
#include "run/machine.h"
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

int run(ProfileFlags flags) {
  if (flags.steps < 1 || flags.steps > kMostSteps) {
    fail("--steps: wanted 1 to ", kMostSteps, ", found ", flags.steps);
  }
  flags.fit.check(flags.fit.wanted());
  if (!flags.fit.wanted() && !flags.fit.wish.profile.empty()) {
    fail("--profile goes with --fit: nothing else here is predicted by it");
  }
  check_profile_folder(flags.out);
  const BoundModel model = flags.step.bound();
  std::string why;
  if (flags.fit.wanted()) {
    // What is chosen is for the device that it runs on, and for the kernels that it runs with.
    const PlanOptions planned = flags.step.device.plan_options();
    if (planned.target == Target::kCuda && flags.fit.wish.profile.empty()) {
      flags.fit.wish.device = sheet_here(planned.target).name;
    }
    flags.step.step.deterministic = planned.deterministic;
    const Chosen chosen = flags.fit.choose(model, flags.step.step);
    flags.step.step.stack = chosen.point.stack;
    why = chosen.why;
  }
  const BuiltStep built = flags.step.built(model);
  const Scheme& step = built.scheme;
  const Plan plan = make_plan(step, flags.step.device.plan_options());
  std::vector<Measured> ranks;
  {
    LateProgress progress;
    ranks = measure_ranks(step, plan,
                          {.steps = static_cast<int>(flags.steps), .told = progress.told()});
  }
  const MachinePeak peak = measure_machine(plan.target);
  Costs costs = costs_on(measured_sheet(peak), peak.threads, product_table());
  costs.deterministic = plan.deterministic;
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
      .measured = most_touched(ranks),
      .ranks = ranks,
      .peak = peak,
      .predicted_seconds = predict_time(step, plan, costs).step,
      .fabric = costs.sheet.fabric};
  const std::string title = stack_title(profile.step.stack);
  const ChartedStep charted{.title = title,
                            .scheme = step,
                            .plan = plan,
                            .seconds = profile.measured.call_seconds,
                            .clock = fmt::format("measured, {} threads", peak.threads)};
  const std::string chart =
      memory_chart(chart_of(profile.step.title, "live memory over one step", {charted}));
  write_profile(flags.out,
                {{"memory.svg", chart},
                 {"trace.json", chrome_trace(step, plan,
                                             {.title = profile.step.title + ", " + title,
                                              .seconds = profile.measured.call_seconds})},
                 {"index.html", profile_page(profile, {{"Memory over the step", chart}})},
                 {"profile.json", full_profile_json(profile).dump(1) + "\n"}});
  if (flags.json) {
    nlohmann::json out = profile_json(profile);
    out["stack"] = profile.step.stack;
    std::cout << out.dump(2) << "\n";
    return kDone;
  }
  std::cout << profile.step.title << "\n";
  if (!why.empty()) std::cout << why;
  std::cout << "\n" << profile_table(profile);
  std::cout << fmt::format("\nwritten to {}: index.html, memory.svg, trace.json, profile.json\n",
                           flags.out);
  return kDone;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("profile", "run a few steps: bytes and times, measured beside predicted");
  auto flags = std::make_shared<ProfileFlags>();
  flags->step.add_to(*command);
  flags->step.step.on_mesh = true;  // all ranks run, as threads of this process
  flags->step.device.add_to(*command);
  flags->fit.add_to(*command);
  command->add_option("--steps", flags->steps, "steps that are timed")->capture_default_str();
  command->add_option("--out", flags->out, "folder for the page, the trace and the numbers")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint profile --model char --batch 12\n"
      "  adjoint profile --model char --batch 12 --stack 'checkpoint(every=2)' --out with");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
