// adjoint convert: a model as a folder of Hugging Face's format.
#include "train/convert.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/activity.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/values.h"
#include "train/fit_budget.h"

namespace adjoint {

namespace {

struct ConvertFlags {
  std::string in, out, dtype, shard = "5GB";
  ConvertOptions options;
  bool json = false;
};

int convert_folder(const ConvertFlags& flags) {
  ConvertOptions options = flags.options;
  if (!flags.dtype.empty()) {
    check_choice("--dtype", flags.dtype, choices_of("convert --dtype"));
    options.dtype = dtype_named(flags.dtype);
  }
  options.shard = budget_of(flags.shard);
  const ConvertResult result = [&] {
    const Activity activity("converting");
    return convert(flags.in, flags.out, options);
  }();
  if (flags.json) {
    const nlohmann::json out = {{"tensors", result.tensors},
                                {"files", result.files},
                                {"bytes", result.size.count},
                                {"out", flags.out}};
    return print_answer("convert", out, -1);
  }
  std::cout << fmt::format("wrote {} tensors, {}, in {} {} to {}\n", result.tensors,
                           human(result.size), result.files, result.files == 1 ? "file" : "files",
                           flags.out);
  return kDone;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("convert", "write a model as a folder that transformers loads");
  auto flags = std::make_shared<ConvertFlags>();
  command->add_option("in", flags->in, "a run's folder, or one of Hugging Face's format")
      ->required();
  command->add_option("out", flags->out, "the folder to write, new or empty")->required();
  command->add_option("--dtype", flags->dtype,
                      "of the weights: f32, bf16 or f16 (default: as in the folder that they come "
                      "from, or that the run began with, else f32)");
  command->add_option("--shard", flags->shard, "the largest file of weights")
      ->capture_default_str();
  command->add_option("--adapter", flags->options.adapter,
                      "merge the LoRA adapter in this folder of PEFT's layout");
  command->add_flag("--adapters-only", flags->options.adapters_only,
                    "of a run with adapters: write these alone, in PEFT's layout");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint convert runs/mine hub/mine --dtype bf16\n"
      "  adjoint convert runs/tuned hub/adapter --adapters-only\n"
      "  adjoint convert hub/llama hub/merged --adapter hub/adapter");
  command->callback([flags, &action] { action = [flags] { return convert_folder(*flags); }; });
}

}  // namespace adjoint
