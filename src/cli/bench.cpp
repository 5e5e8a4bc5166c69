// adjoint bench: how fast the calls of a step and whole steps are, beside what the machine gives.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "bench/op_bench.h"
#include "bench/step_bench.h"
#include "bench/token_bench.h"
#include "cli/answer.h"
#include "cli/bench_comm.h"
#include "cli/bench_ranks.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "device/gpu.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "train/fit_budget.h"
#include "train/late_progress.h"

namespace adjoint {

namespace {

constexpr int64_t kMostSteps = 100000;

struct BenchFlags {
  StepFlags step;
  int64_t steps = 10, warmup = 3;
  std::string filter;                      // of ops
  std::vector<int64_t> batches, contexts;  // of a sweep
  int64_t prompt = 0;                      // positions before timed tokens
  bool json = false;

  BenchFlags() {  // the step that our CPU numbers are about
    step.model.model = "ref";
    step.model.batch = 8;
  }
};

void check_steps(const BenchFlags& flags) {
  if (flags.steps < 1 || flags.steps > kMostSteps) {
    fail("--steps: wanted 1 to ", kMostSteps, ", found ", flags.steps);
  }
  if (flags.warmup < 0 || flags.warmup > kMostSteps) {
    fail("--warmup: wanted 0 to ", kMostSteps, ", found ", flags.warmup);
  }
}

BenchedStep described(const StepFlags& flags, const BoundModel& model) {
  std::string title = flags.describe(model);
  if (!flags.step.stack.empty()) title += ", " + flags.step.stack;
  return {.model = model.name(),
          .stack = flags.step.stack,
          .title = title + (flags.device.target() == Target::kCuda
                                ? ", " + open_gpu().name
                                : ", " + counted(num_threads(), "thread")),
          .batch = model.batch(),
          .context = model.context(),
          .threads = num_threads()};
}

Plan planned(const StepFlags& flags, const Scheme& step) {
  const Activity activity("planning");
  return make_plan(step, flags.device.plan_options());
}

void print_json(nlohmann::json out) { print_answer("bench", std::move(out)); }

int run_ops(const BenchFlags& flags) {
  check_steps(flags);
  const BoundModel model = flags.step.bound();
  const BuiltStep built = flags.step.built(model);
  OpBench bench;
  {
    LateProgress progress("timing");
    bench = bench_ops(
        described(flags.step, model), built.scheme, planned(flags.step, built.scheme),
        {.steps = static_cast<int>(flags.steps), .filter = flags.filter, .told = progress.told()});
  }
  if (flags.json) {
    print_json(op_bench_json(bench));
  } else {
    std::cout << bench.step.title << "\n" << op_bench_table(bench);
  }
  return kDone;
}

StepBench benched(const BenchFlags& flags, bool touched) {
  const BoundModel model = flags.step.bound();
  const BuiltStep built = flags.step.built(model);
  LateProgress progress("timing");
  return bench_step(described(flags.step, model), built.scheme, planned(flags.step, built.scheme),
                    {.steps = static_cast<int>(flags.steps),
                     .warmup = static_cast<int>(flags.warmup),
                     .touched = touched,
                     .told = progress.told()});
}

int run_step(const BenchFlags& flags) {
  check_steps(flags);
  StepBench bench = benched(flags, true);
  // After the step: the product that it times has memory of its own.
  {
    const Activity activity("timing products");
    bench.products = product_rate(bench.dtype, flags.step.device.target());
  }
  if (flags.json) {
    print_json(step_bench_json(bench));
  } else {
    std::cout << bench.step.title << "\n\n" << step_bench_table(bench);
  }
  return kDone;
}

// Along one of the two sizes, the other as it was said.
std::vector<StepBench> swept(BenchFlags flags, int64_t ModelFlags::*size,
                             const std::vector<int64_t>& values) {
  std::vector<StepBench> rows;
  for (const int64_t value : values) {
    flags.step.model.*size = value;
    rows.push_back(benched(flags, false));
    rows.back().resident = {0};  // the process has held other steps before
  }
  return rows;
}

int run_sweep(const BenchFlags& flags) {
  check_steps(flags);
  if (flags.batches.empty() && flags.contexts.empty()) {
    fail("a sweep goes along a size: say --batches 4,8,16 or --contexts 512,1024,2048");
  }
  for (const int64_t batch : flags.batches) {
    if (batch < 1) fail("--batches: wanted numbers of at least 1, found ", batch);
  }
  for (const int64_t context : flags.contexts) {
    if (context < 1) fail("--contexts: wanted numbers of at least 1, found ", context);
  }
  const auto by_batch = swept(flags, &ModelFlags::batch, flags.batches);
  const auto by_context = swept(flags, &ModelFlags::context, flags.contexts);
  if (flags.json) {
    nlohmann::json out = nlohmann::json::object();
    if (!by_batch.empty()) out["batches"] = sweep_json(by_batch);
    if (!by_context.empty()) out["contexts"] = sweep_json(by_context);
    print_json(out);
    return kDone;
  }
  for (const auto& rows : {by_batch, by_context}) {
    if (rows.empty()) continue;
    std::cout << rows.front().step.title << ", and then:\n\n" << sweep_table(rows) << "\n";
  }
  return kDone;
}

int run_tokens(const BenchFlags& flags) {
  check_steps(flags);
  if (flags.prompt < 0) fail("--prompt: wanted 0 or more, found ", flags.prompt);
  const BoundModel model = flags.step.bound();
  StepOptions step = flags.step.step;
  step.target = flags.step.device.target();
  const TokenBench bench = [&] {
    const Activity activity("timing tokens");
    return bench_tokens(described(flags.step, model).title, logits_of(model.forward()), step,
                        flags.step.device.plan_options(),
                        {.tokens = static_cast<int>(flags.steps),
                         .warmup = static_cast<int>(flags.warmup),
                         .prompt = flags.prompt});
  }();
  if (flags.json) {
    print_json(token_bench_json(bench));
  } else {
    std::cout << bench.title << "\n\n" << token_bench_table(bench);
  }
  return kDone;
}

CLI::App* add_kind(CLI::App& bench, Action& action, const std::string& name,
                   const std::string& help, int (*run)(const BenchFlags&),
                   const std::shared_ptr<BenchFlags>& flags) {
  CLI::App* command = bench.add_subcommand(name, help);
  flags->step.add_to(*command);
  command->add_option("--steps", flags->steps, "steps that are timed")->capture_default_str();
  command->add_flag("--json", flags->json, "as JSON");
  command->callback([flags, run, &action] { action = [flags, run] { return run(*flags); }; });
  return command;
}

void add_warmup(CLI::App& command, BenchFlags& flags) {
  command.add_option("--warmup", flags.warmup, "steps before them that are not")
      ->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "how fast calls and steps are, beside the peak");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  adjoint bench step --model ref --batch 8 --threads 2\n"
      "  adjoint bench ops --model ref --batch 8 --threads 2\n"
      "  adjoint bench sweep --model ref --batches 4,8,16,32,64\n"
      "  adjoint bench tokens --model gpt2 --stack bf16\n"
      "  adjoint bench comm --ranks 4\n"
      "  adjoint bench ranks --stack 'data_parallel(2) | zero(3)'");
  add_bench_comm(*bench, action);
  add_bench_ranks(*bench, action);

  auto of_ops = std::make_shared<BenchFlags>();
  CLI::App* ops = add_kind(*bench, action, "ops",
                           "every distinct call of a step: inside it, alone, and as a bare loop "
                           "over oneDNN",
                           run_ops, of_ops);
  of_ops->step.device.add_to(*ops);
  ops->add_option("--filter", of_ops->filter, "only calls whose text has this regular expression");
  ops->footer(
      "'ms' is of a whole step; 'of floor' is the larger of FLOPs over the measured peak and "
      "bytes\n"
      "over the measured bandwidth, as a share of the time; 'of bare' is what a product inside "
      "the\n"
      "step reaches of a loop over oneDNN's primitive for the shape on hot buffers, its second "
      "operand\n"
      "as it lies or laid out beforehand, whichever is faster; on a GPU there is no such loop.\n"
      "Examples:\n"
      "  adjoint bench ops --model ref --batch 8 --threads 2\n"
      "  adjoint bench ops --model ref --batch 32 --stack bf16 --filter 'linear|contract' --json\n"
      "  adjoint bench ops --model gpt2 --batch 32 --stack bf16 --device cuda");

  auto of_step = std::make_shared<BenchFlags>();
  CLI::App* step = add_kind(*bench, action, "step", "whole steps of training, without the disk",
                            run_step, of_step);
  of_step->step.device.add_to(*step);
  add_warmup(*step, *of_step);
  step->footer(
      "Examples:\n"
      "  adjoint bench step --model ref --batch 8 --threads 2\n"
      "  adjoint bench step --model char --batch 12 --threads 2 --steps 200 --json");

  auto of_tokens = std::make_shared<BenchFlags>();
  of_tokens->step.model.batch = 1;
  CLI::App* tokens =
      add_kind(*bench, action, "tokens",
               "single tokens with kept keys and values, beside what the memory gives", run_tokens,
               of_tokens);
  of_tokens->step.device.add_to(*tokens);
  add_warmup(*tokens, *of_tokens);
  tokens->add_option("--prompt", of_tokens->prompt, "positions before the first token")
      ->capture_default_str();
  tokens->footer(
      "Parameters are zeros.\n"
      "Examples:\n"
      "  adjoint bench tokens --model llama3.2-1b --context 256 --stack bf16 --steps 32\n"
      "  adjoint bench tokens --model llama3.2-1b --context 256 --stack 'quantize(int8) | bf16'");

  auto of_sweep = std::make_shared<BenchFlags>();
  CLI::App* sweep =
      add_kind(*bench, action, "sweep", "steps of growing batch or context", run_sweep, of_sweep);
  of_sweep->step.device.add_to(*sweep);
  add_warmup(*sweep, *of_sweep);
  sweep->add_option("--batches", of_sweep->batches, "such as 4,8,16,32,64")->delimiter(',');
  sweep->add_option("--contexts", of_sweep->contexts, "such as 512,1024,2048,4096")->delimiter(',');
  sweep->footer(
      "Examples:\n"
      "  adjoint bench sweep --model ref --batches 4,8,16,32,64\n"
      "  adjoint bench sweep --model ref --batch 4 --contexts 512,1024,2048,4096 --json");
}

}  // namespace adjoint
