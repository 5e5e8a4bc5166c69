// adjoint eval: the loss of a trained model on a text.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/step_flags.h"
#include "train/evaluate.h"

namespace adjoint {

namespace {

struct EvalFlags {
  std::string model, data, weights;
  int64_t threads = 0;
  DeviceFlags device;
  bool json = false;
};

int run(const EvalFlags& flags) {
  use_threads(flags.threads);
  const EvaluateResult result = evaluate_run(
      flags.model, {.data = flags.data, .weights = flags.weights}, flags.device.plan_options());
  const double perplexity = std::exp(result.loss);
  if (flags.json) {
    const nlohmann::json out = {{"step", result.step},
                                {"tokens", result.tokens},
                                {"loss", result.loss},
                                {"perplexity", perplexity}};
    std::cout << out.dump() << "\n";
    return kDone;
  }
  std::cout << fmt::format("step {}: loss {:.4f}, perplexity {:.4f}, of {} tokens\n", result.step,
                           result.loss, perplexity, result.tokens);
  return kDone;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("eval", "the loss of a trained model on a text");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("--model", flags->model, "the --out folder of a training run")->required();
  command->add_option("--data", flags->data,
                      "a text, all of it (default: the validation part of the run's own)");
  command->add_option("--weights", flags->weights,
                      "a state that follows parameters, in their place: ema.average");
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  flags->device.add_to(*command);
  command->add_flag("--json", flags->json, "as JSON");
  command->footer("Example:\n  adjoint eval --model runs/book --weights ema.average");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
