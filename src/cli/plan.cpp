// adjoint plan: what a step of training would need, without running it.
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/totals.h"
#include "base/error.h"
#include "cli/command.h"
#include "device/parallel.h"
#include "functors/functor.h"
#include "report/memory_table.h"
#include "report/stack_table.h"
#include "train/bound_model.h"
#include "train/config.h"

namespace adjoint {

namespace {

struct PlanFlags {
  std::string model = "gpt2";
  int64_t batch = 1, context = 0, vocab = 0;
  std::vector<std::string> set;
  StepOptions step;
  int64_t threads = 0;
  bool json = false, measure = false;
};

int run(const PlanFlags& flags) {
  if (flags.batch < 1) fail("--batch: wanted at least 1, found ", flags.batch);
  if (flags.context < 0) fail("--context: wanted at least 1, found ", flags.context);
  if (flags.vocab < 0) fail("--vocab: wanted at least 1, found ", flags.vocab);
  if (!(flags.step.clip >= 0)) fail("--clip: wanted 0 or more, found ", flags.step.clip);
  use_threads(flags.threads);
  ModelSizes sizes{.batch = flags.batch, .context = flags.context};
  for (const std::string& setting : flags.set) sizes.settings.update(parse_setting(setting));
  if (flags.vocab > 0) sizes.vocab = flags.vocab;
  const BoundModel model(find_model(flags.model), sizes);
  const BuiltStep built = build_step(model.forward(), parse_stack(flags.step.stack), flags.step);
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
  std::cout << fmt::format("{}, batch {} x {} tokens, {} with {}\n", model.name(), model.batch(),
                           model.context(), flags.step.optimizer,
                           flags.step.clip > 0 ? "clipping" : "no clipping");
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
  command->add_option("--model", flags->model, "a preset or a .scheme file")->capture_default_str();
  command->add_option("--batch", flags->batch, "samples per step")->capture_default_str();
  command->add_option("--context", flags->context, "tokens per sample; 0: the model's")
      ->capture_default_str();
  command->add_option("--vocab", flags->vocab, "tokens of the vocabulary; 0: the model's");
  command->add_option("--set", flags->set, "settings of the model by name, such as layers=2");
  command->add_option("--optimizer", flags->step.optimizer, "adamw, momentum or sgd")
      ->capture_default_str();
  command
      ->add_option("--clip", flags->step.clip,
                   "0: no clipping, so each gradient dies in its update")
      ->capture_default_str();
  command->add_option("--stack", flags->step.stack,
                      "functors joined by '|', such as \"bf16 | checkpoint(every=2)\"");
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
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
