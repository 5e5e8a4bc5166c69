// adjoint eval: how well a trained model predicts texts and answers questions.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "cli/values.h"
#include "train/evaluate.h"
#include "train/late_progress.h"

namespace adjoint {

namespace {

struct EvalFlags {
  std::string model, choices, by = "source";
  EvaluateOptions options;
  int64_t threads = 0;
  DeviceFlags device;
  bool json = false;
};

nlohmann::json to_json(const Likelihood& text) {
  nlohmann::json out = {{"loss", text.loss},
                        {"perplexity", text.perplexity()},
                        {"bits_per_byte", nullptr},
                        {"tokens", text.tokens},
                        {"bytes", nullptr}};
  if (const auto bits = text.bits_per_byte()) out["bits_per_byte"] = *bits;
  if (text.bytes) out["bytes"] = *text.bytes;
  return out;
}

nlohmann::json to_json(const EvaluateResult& result) {
  nlohmann::json out = result.text ? to_json(*result.text) : nlohmann::json::object();
  if (result.step) out["step"] = *result.step;
  if (result.text) out["sources"] = nlohmann::json::array();
  for (const Likelihood& source : result.sources) {
    out["sources"].push_back(to_json(source));
    out["sources"].back()["source"] = source.source;
  }
  if (result.choices) {
    out["questions"] = result.choices->questions;
    out["accuracy"] = result.choices->accuracy();
    out["accuracy_normalized"] = result.choices->accuracy_normalized();
  }
  return out;
}

std::string words(const Likelihood& text) {
  std::string said = fmt::format("loss {:.4f}, perplexity {:.4f}", text.loss, text.perplexity());
  if (const auto bits = text.bits_per_byte()) said += fmt::format(", {:.4f} bits per byte", *bits);
  said += fmt::format(", of {} tokens", text.tokens);
  if (text.bytes) said += fmt::format(" ({} bytes)", *text.bytes);
  return said;
}

void print(const EvaluateResult& result) {
  const std::string step = result.step ? fmt::format("step {}: ", *result.step) : "";
  // Of one source the result is that of all.
  if (result.sources.size() > 1) {
    for (const Likelihood& source : result.sources) {
      std::cout << source.source << ": " << words(source) << "\n";
    }
  }
  if (result.text) std::cout << step << words(*result.text) << "\n";
  if (const auto& choices = result.choices) {
    std::cout << fmt::format(
        "{}accuracy {:.4f}, by log probability per byte {:.4f}, of {} questions\n", step,
        choices->accuracy(), choices->accuracy_normalized(), choices->questions);
  }
}

int run(EvalFlags flags) {
  check_choice("--by", flags.by, choices_of("eval --by"));
  use_threads(flags.threads);
  flags.options.by_file = flags.by == "file";
  flags.options.choices = flags.choices;
  EvaluateResult result;
  {
    LateProgress progress("evaluating");
    flags.options.told = progress.told();
    result = evaluate(flags.model, flags.options, flags.device.plan_options());
  }
  if (flags.json) {
    print_answer("eval", to_json(result), -1);
  } else {
    print(result);
  }
  return kDone;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("eval", "how well a trained model predicts texts and answers questions");
  auto flags = std::make_shared<EvalFlags>();
  EvaluateOptions& options = flags->options;
  command
      ->add_option("--model", flags->model,
                   "the --out folder of a training run, or a folder of Hugging Face's format")
      ->required();
  command->add_option("--data", options.data,
                      "texts, JSON lines (.jsonl), either compressed (.gz, .zst), tokens (.bin), a "
                      "folder or a pattern of them; several times (default: the validation part of "
                      "the run's own, in whole samples)");
  command->add_option("--by", flags->by, "a result for each --data (source) or each file (file)")
      ->capture_default_str();
  command
      ->add_option("--stride", options.stride,
                   "windows begin this many tokens apart, and predict what none before did; 0: as "
                   "many as a window has")
      ->capture_default_str();
  command
      ->add_option("--seq", options.seq,
                   "how many tokens the model sees at once; 0: as in training, or its context")
      ->capture_default_str();
  command->add_option("--batch", options.batch, "windows at once; 0: as in training, or 4")
      ->capture_default_str();
  command->add_option("--choices", flags->choices,
                      "questions, JSON lines {\"prompt\": \"...\", \"choices\": [\"...\", ...], "
                      "\"answer\": a choice or its number from 0}: how many are answered right");
  command->add_option("--template", options.chat_template,
                      "how messages of JSON lines are written (default: as in training)");
  command->add_flag("--skip-bad", options.skip_bad,
                    "leave lines of --data out that are broken, and count them");
  command->add_option("--weights", options.weights,
                      "a state that follows parameters, in their place: ema.average");
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  flags->device.add_to(*command);
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint eval --model runs/book --weights ema.average\n"
      "  adjoint eval --model gpt2-folder --data 'test/*.txt' --by file --stride 512\n"
      "  adjoint eval --model runs/book --choices questions.jsonl --json");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
