// adjoint quantize: the linear maps of a trained model as codes of a few bits.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/activity.h"
#include "base/error.h"
#include "cli/answer.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "cli/values.h"
#include "train/quantize_run.h"

namespace adjoint {

namespace {

struct QuantizeFlags {
  std::string run, out, data, format = "int4", per = "group", method = "gptq";
  int64_t group = 128, batches = 16, threads = 0;
  DeviceFlags device;
  bool json = false;
};

QuantizeOptions options_of(const QuantizeFlags& flags) {
  QuantizeOptions options{.batches = flags.batches, .data = flags.data};
  check_choice("--format", flags.format, choices_of("quantize --format"));
  options.format.kind = *code_kind(flags.format);
  check_choice("--per", flags.per, choices_of("quantize --per"));
  check_choice("--method", flags.method, choices_of("quantize --method"));
  if (flags.per == "group") {
    if (flags.group < 1) fail("--group: wanted 1 or more, found ", flags.group);
    options.format.per = CodeFormat::Per::kGroup;
    options.format.group = flags.group;
  } else if (flags.per == "channel") {
    options.format.per = CodeFormat::Per::kChannel;
  }
  options.calibrated = flags.method == "gptq";
  if (flags.batches < 1 || flags.batches > 1'000'000) {
    fail("--batches: wanted 1 to 1000000, found ", flags.batches);
  }
  return options;
}

int run(const QuantizeFlags& flags) {
  const QuantizeOptions options = options_of(flags);
  use_threads(flags.threads);
  const QuantizeResult result = [&] {
    const Activity activity("quantizing");
    return quantize_run(flags.run, flags.out, options, flags.device.plan_options());
  }();
  const double before = std::exp(result.loss_before), after = std::exp(result.loss_after);
  if (flags.json) {
    const nlohmann::json out = {
        {"step", result.step},
        {"stack", result.stack},
        {"method", flags.method},
        {"matrices", result.matrices},
        {"calibrated", result.calibrated},
        {"loss", {{"before", result.loss_before}, {"after", result.loss_after}}},
        {"perplexity", {{"before", before}, {"after", after}}},
        {"bytes", {{"before", result.before.count}, {"after", result.after.count}}},
        {"out", flags.out}};
    return print_answer("quantize", out, -1);
  }
  std::cout << fmt::format(
      "quantized {} matrices of step {} to {} by {} into {}\n"
      "perplexity {:.4f}, before {:.4f}; {} for what were {}\n",
      result.matrices, result.step, to_string(options.format), flags.method, flags.out, after,
      before, human(result.after), human(result.before));
  return kDone;
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("quantize", "hold the linear maps of a trained model as codes");
  auto flags = std::make_shared<QuantizeFlags>();
  command->add_option("--run", flags->run, "the --out folder of a training run")->required();
  command->add_option("--out", flags->out, "the folder of the quantized model")->required();
  command->add_option("--format", flags->format, "int8, int4, or nf4")->capture_default_str();
  command->add_option("--per", flags->per, "what shares a scale: tensor, channel or group")
      ->capture_default_str();
  command->add_option("--group", flags->group, "neighbours of a row that share a scale")
      ->capture_default_str();
  command
      ->add_option("--method", flags->method,
                   "gptq: later columns make up for the rounding of earlier ones, by what data the "
                   "map reads; round: every number to its nearest code")
      ->capture_default_str();
  command->add_option("--batches", flags->batches, "of the training text, for gptq")
      ->capture_default_str();
  command->add_option("--data", flags->data, "the text (default: the run's own)");
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  flags->device.add_to(*command);
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Example:\n"
      "  adjoint quantize --run runs/book --out runs/book4 --format int4 --group 128\n"
      "  adjoint generate --model runs/book4\n"
      "  adjoint train --init runs/book4 --data mine.txt --out runs/mine \\\n"
      "    --stack 'quantize(int4, group=128) | lora(rank=8)'");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
