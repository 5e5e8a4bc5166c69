#include "cli/step_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/activity.h"
#include "base/error.h"
#include "base/note.h"
#include "cli/command.h"
#include "device/parallel.h"
#include "run/machine.h"
#include "train/config.h"
#include "train/fit_budget.h"
#include "train/settings_text.h"

namespace adjoint {

const std::string& run_help(const std::string& option) {
  return option_named(train_options(), option).help;
}

void share_cores(int64_t said, int ranks) {
  if (said == 0) use_threads(std::max(1, num_threads() / ranks));
}

void ModelFlags::add_to(CLI::App& command) {
  command
      .add_option("--model", model, "a preset, a .scheme file or a folder of Hugging Face's format")
      ->capture_default_str();
  command.add_option("--batch", batch, run_help("batch"))->capture_default_str();
  command.add_option("--context", context, run_help("context"))->capture_default_str();
  command.add_option("--seq", seq, run_help("seq"))->capture_default_str();
  command.add_option("--set", set, "settings of the model by name, such as layers=2");
}

BoundModel bound_model(const ModelFlags& flags) {
  if (flags.batch < 1) fail("--batch: wanted at least 1, found ", flags.batch);
  if (flags.context < 0) fail("--context: wanted at least 1, found ", flags.context);
  if (flags.vocab < 0) fail("--vocab: wanted at least 1, found ", flags.vocab);
  if (flags.seq < 0) fail("--seq: wanted at least 1, found ", flags.seq);
  ModelSizes sizes{.batch = flags.batch, .context = flags.context, .seq = flags.seq};
  for (const std::string& setting : flags.set) sizes.settings.update(parse_setting(setting));
  if (flags.vocab > 0) sizes.vocab = flags.vocab;
  return BoundModel(find_model(flags.model), sizes);
}

void StepFlags::add_to(CLI::App& command) {
  model.add_to(command);
  command.add_option("--vocab", model.vocab, "tokens of the vocabulary; 0: the model's");
  command.add_option("--optimizer", step.optimizer, run_help("optimizer"))->capture_default_str();
  command.add_option("--clip", step.clip, "0: no clipping, so each gradient dies in its update")
      ->capture_default_str();
  command.add_option("--stack", step.stack,
                     "functors joined by '|', such as \"bf16 | checkpoint(every=2)\"");
  command.add_option("--threads", threads, run_help("threads"));
  command.add_option("--ranks", step.ranks, kRanksHelp);
}

void DeviceFlags::add_to(CLI::App& command) {
  command.add_option("--device", device, "cpu or cuda")->capture_default_str();
  command.add_flag("--deterministic", deterministic, run_help("deterministic"));
}

Target DeviceFlags::target() const { return target_named(device); }

PlanOptions DeviceFlags::plan_options() const {
  return adjoint::plan_options(
      {.sheet = sheet_here(target()), .threads = num_threads(), .deterministic = deterministic});
}

BoundModel StepFlags::bound() const {
  device.target();
  if (!(step.clip >= 0)) fail("--clip: wanted 0 or more, found ", step.clip);
  use_threads(threads);
  return bound_model(model);
}

BuiltStep StepFlags::built(const BoundModel& model) const {
  StepOptions options = step;
  options.target = device.target();
  options.deterministic = device.deterministic;
  const Activity activity("planning");
  return build_step(model.forward(), parse_stack(step.stack), options);
}

void StepFlags::warn_of(const BuiltStep& built) {
  for (const Applied& applied : built.applied) {
    for (const std::string& doubt : applied.doubts) warn_once(doubt);
  }
}

std::string StepFlags::describe(const BoundModel& model) const {
  return fmt::format("{}, batch {} x {} tokens, {} with {}", model.name(), model.batch(),
                     model.context(), step.optimizer, step.clip > 0 ? "clipping" : "no clipping");
}

}  // namespace adjoint
