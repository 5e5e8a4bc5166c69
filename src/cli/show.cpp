// adjoint show: a model's scheme as text, before and after it becomes a step.
#include <iostream>

#include "base/error.h"
#include "cli/command.h"
#include "functors/functor.h"
#include "train/bound_model.h"
#include "train/config.h"

namespace adjoint {

namespace {

struct ShowFlags {
  std::string model = "gpt2";
  int64_t batch = 1, context = 0;
  std::vector<std::string> set;
  bool text = false, step = false;
};

int run(const ShowFlags& flags) {
  if (flags.batch < 1) fail("--batch: wanted at least 1, found ", flags.batch);
  const ModelText text = find_model(flags.model);
  if (flags.text) {
    std::cout << text.text;
    return kDone;
  }
  ModelSizes sizes{.batch = flags.batch, .context = flags.context};
  for (const std::string& setting : flags.set) sizes.settings.update(parse_setting(setting));
  const Scheme forward = BoundModel(text, sizes).forward();
  std::cout << print(flags.step ? training_step(forward, {}) : forward);
  return kDone;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "print a model's scheme, or its whole training step");
  auto flags = std::make_shared<ShowFlags>();
  command->add_option("--model", flags->model, "a preset or a .scheme file")->capture_default_str();
  command->add_option("--batch", flags->batch, "samples per step")->capture_default_str();
  command->add_option("--context", flags->context, "tokens per sample; 0: the model's");
  command->add_option("--set", flags->set, "settings of the model by name, such as layers=1");
  command->add_flag("--text", flags->text, "the model as it was written");
  command->add_flag("--step", flags->step, "the training step: gradients and updates too");
  command->footer(
      "Examples:\n"
      "  adjoint show --model gpt2 --text\n"
      "  adjoint show --model gpt2 --set layers=1 --step");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
