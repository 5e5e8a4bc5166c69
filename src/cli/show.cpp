// adjoint show: a model's scheme as text, before and after a stack makes a step of it.
#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "base/error.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "report/memory_states.h"
#include "report/stack_table.h"

namespace adjoint {

namespace {

struct ShowFlags {
  ModelFlags model;
  std::optional<std::string> stack;
  StepOptions options;
  bool text = false, step = false, diff = false, memory_states = false;
};

// The stack that has only the defaults which this one leaves on.
Stack defaults_of(const Stack& stack) {
  Stack rest{.functors = {}, .off = stack.off};
  for (const StackedFunctor& f : stack.functors) {
    if (f.by_default) rest.functors.push_back(f);
  }
  return rest;
}

std::string commented(const std::string& text) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    out += "# " + text.substr(from, end - from) + "\n";
    from = end + 1;
  }
  return out;
}

int show_stack(const Scheme& forward, const ShowFlags& flags) {
  const Stack stack = parse_stack(*flags.stack);
  // With a stack of nothing but defaults, what they do to the plain step is the news.
  const bool named = !print(stack).empty();
  Stack plain = named ? defaults_of(stack) : Stack{};
  const Scheme before = build_step(forward, plain, flags.options).scheme;
  const BuiltStep after = build_step(forward, stack, flags.options);
  const std::string was = named ? "the step with the defaults only" : "the plain step";
  if (!flags.diff) {
    std::cout << fmt::format("# before: {}, {} morphisms\n{}\n", was, before.morphisms.size(),
                             print(before));
  }
  std::cout << commented(stack_table(after.applied));
  if (flags.diff) {
    std::cout << fmt::format("# against {}: + new, - gone, ~ changed; {} -> {} morphisms\n{}", was,
                             before.morphisms.size(), after.scheme.morphisms.size(),
                             scheme_difference(before, after.scheme));
  } else {
    std::cout << fmt::format("\n# after: {} morphisms\n{}", after.scheme.morphisms.size(),
                             print(after.scheme));
  }
  return kDone;
}

// Threads change workspaces alone, which are left out.
int show_memory_states(const Scheme& forward, const ShowFlags& flags) {
  const Stack stack = parse_stack(flags.stack.value_or(""));
  StepOptions options = flags.options;
  options.stack = print(stack);
  std::cout << memory_states_table(said_step(forward, stack, options),
                                   build_step(forward, stack, options).scheme, PlanOptions{});
  return kDone;
}

int run(const ShowFlags& flags) {
  if (flags.memory_states && (flags.diff || flags.step || flags.text)) {
    fail("--memory-states is a table of its own: leave --diff, --step and --text out");
  }
  if (flags.diff && !flags.stack) fail("--diff: wanted --stack too: what should differ?");
  if (flags.text) {
    std::cout << find_model(flags.model.model).text;
    return kDone;
  }
  const Scheme forward = bound_model(flags.model).forward();
  if (flags.memory_states) return show_memory_states(forward, flags);
  if (flags.stack) return show_stack(forward, flags);
  std::cout << print(flags.step ? training_step(forward, flags.options) : forward);
  return kDone;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "print a model's scheme, or its step before and after a stack");
  auto flags = std::make_shared<ShowFlags>();
  flags->options.on_mesh = true;  // shards and collectives are shown
  flags->model.add_to(*command);
  command->add_flag("--text", flags->text, "the model as it was written");
  command->add_flag("--step", flags->step, "the training step: gradients and updates too");
  command->add_option("--optimizer", flags->options.optimizer, run_help("optimizer"))
      ->capture_default_str();
  command->add_option("--stack", flags->stack,
                      "the step before and after these functors, with what they matched; '' shows "
                      "what the defaults do");
  command->add_flag("--diff", flags->diff, "with --stack: only what is new, gone or changed");
  command->add_flag("--memory-states", flags->memory_states,
                    "what of the step's activations is alive after each block of the chain, or of "
                    "a pipeline after each slot, as a product with bytes");
  command->footer(
      "Examples:\n"
      "  adjoint show --model gpt2 --text\n"
      "  adjoint show --model gpt2 --set layers=1 --step\n"
      "  adjoint show --model gpt2 --set layers=2 --stack 'lora(rank=8)' --diff\n"
      "  adjoint show --model char --set layers=6 --stack 'checkpoint(every=3)' "
      "--memory-states");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
