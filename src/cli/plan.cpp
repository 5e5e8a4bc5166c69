// adjoint plan: what a step of training would need, without running it.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/totals.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "device/parallel.h"
#include "report/memory_table.h"
#include "report/stack_table.h"

namespace adjoint {

namespace {

struct PlanFlags {
  StepFlags step;
  bool json = false, measure = false;
};

int run(const PlanFlags& flags) {
  const BoundModel model = flags.step.bound();
  const BuiltStep built = flags.step.built(model);
  const Scheme& step = built.scheme;
  const Plan plan = make_plan(step, {.threads = num_threads()});
  std::optional<Measured> measured;
  if (flags.measure) measured = measure_step(step, plan);
  const int64_t tokens = model.batch() * model.context();
  const auto flops = flops_by_phase(step);
  if (flags.json) {
    nlohmann::json out = memory_json(plan);
    out["model"] = model.name();
    out["params"] = num_parameters(step);
    const double total = flops[0] + flops[1] + flops[2];
    if (total < 9e15) {
      out["flops_per_step"] = static_cast<int64_t>(total);
    } else {
      out["flops_per_step"] = total;
    }
    out["tokens_per_step"] = tokens;
    if (measured) {
      out["measured_peak_bytes"] = measured->touched.count;
      out["measured_step_s"] = measured->step_seconds;
    }
    std::cout << out.dump(2) << "\n";
    return kDone;
  }
  std::cout << flags.step.describe(model) << "\n";
  std::cout << "\n" << stack_table(built.applied) << "\n";
  std::cout << fmt::format("{:<18} {:>20}\n\n", "parameters", with_commas(num_parameters(step)));
  std::cout << memory_table(plan, measured);
  std::cout << fmt::format("\n{:<18} {:>12.4g} forward, {:.4g} backward, {:.4g} update\n",
                           "FLOPs per step", double(flops[0]), double(flops[1]), double(flops[2]));
  std::cout << fmt::format("{:<18} {:>12}\n", "tokens per step", with_commas(tokens));
  if (measured) {
    std::cout << fmt::format("{:<18} {:>9.1f} ms, {:.1f} GFLOP/s\n", "measured step",
                             1e3 * measured->step_seconds,
                             double(flops[0] + flops[1] + flops[2]) / measured->step_seconds / 1e9);
  }
  return kDone;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "memory and FLOPs of a training step, without running it");
  auto flags = std::make_shared<PlanFlags>();
  flags->step.add_to(*command);
  command->add_flag("--measure", flags->measure,
                    "run a few steps on random tokens, and say what they really touched");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint plan --model gpt2 --batch 32 --context 1024\n"
      "  adjoint plan --model gpt2 --batch 32 --stack 'bf16 | checkpoint(block)'");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
