// adjoint show: a model's scheme as text or JSON, near and far, before and after a stack makes a
// step of it.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/totals.h"
#include "base/activity.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "device/parallel.h"
#include "edit/document_json.h"
#include "models/viete.h"
#include "report/level_view.h"
#include "report/memory_states.h"
#include "report/scheme_json.h"
#include "report/stack_table.h"
#include "train/fit_budget.h"

namespace adjoint {

namespace {

struct ShowFlags {
  ModelFlags model;
  std::optional<std::string> stack;
  StepOptions options;
  FitWish wish;  // the device and its costs
  int64_t threads = 0;
  std::string level = "op", viete;
  bool text = false, step = false, diff = false, memory_states = false, json = false;

  bool of_step() const { return step || stack; }
};

// What a stack is set beside: the defaults alone. Beside a stack of nothing but them it is the
// plain step, since what they do to it is the news then.
Stack beside(const Stack& stack) { return print(stack).empty() ? Stack{} : parse_stack(""); }

std::string commented(const std::string& text) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    out += "# " + text.substr(from, end - from) + "\n";
    from = end + 1;
  }
  return out;
}

// What all answers for machines begin with.
nlohmann::json head_of(const ShowFlags& flags, const BoundModel& model, const Scheme& scheme) {
  return {{"model", model.name()},
          {"batch", model.batch()},
          {"seq", model.context()},
          {"params", num_parameters(scheme)},
          {"trained_params", num_trained(scheme)},
          {"level", flags.level},
          {"of", flags.of_step() ? "step" : "forward"}};
}

std::string head_in_words(const BoundModel& model, const Scheme& scheme) {
  const int64_t all = num_parameters(scheme), trained = num_trained(scheme);
  return fmt::format("# {}, batch {} x {} tokens, {} parameters{}\n", model.name(), model.batch(),
                     model.context(), with_commas(all),
                     trained == all ? "" : ", " + with_commas(trained) + " of them trained");
}

void add_scheme(nlohmann::json& out, const Scheme& scheme, Level level, const WrittenIn* written) {
  if (level == Level::kOp) {
    out["scheme"] = scheme_json(scheme, written);
  } else {
    out["chain"] = level_json(scheme, level, written ? &written->places : nullptr);
  }
}

int print_json(nlohmann::json out) { return print_answer("show", std::move(out), -1); }

// Steps of large models and their plans take seconds; whoever prints has ended this.
constexpr const char* kApplying = "applying the stack";

int show_difference(const ShowFlags& flags, const BoundModel& model) {
  std::optional<Activity> activity(std::in_place, kApplying);
  const Scheme forward = model.forward();
  const Stack stack = parse_stack(*flags.stack);
  const bool named = !print(stack).empty();
  const Scheme before = build_step(forward, beside(stack), flags.options).scheme;
  std::vector<Firing> firings;
  const BuiltStep after =
      build_step(forward, stack, flags.options, flags.json ? &firings : nullptr);
  if (flags.json) {
    nlohmann::json out = head_of(flags, model, after.scheme);
    const Difference difference = difference_of(before, after.scheme);
    out["stack"] = print(stack);
    out["law"] = name(law_of(stack));
    out["against"] = against(stack);
    out["before"] = {{"morphisms", before.morphisms.size()}};
    out["after"] = {{"morphisms", after.scheme.morphisms.size()}};
    out["applied"] = applied_json(after.applied, stack, firings);
    out["new"] = difference.added;
    out["gone"] = difference.gone;
    out["changed"] = nlohmann::json::array();
    for (const auto& changed : difference.changed) {
      out["changed"].push_back(
          {{"source", changed.source}, {"was", changed.was}, {"is", changed.is}});
    }
    activity.reset();
    return print_json(out);
  }
  const std::string difference = scheme_difference(before, after.scheme);
  activity.reset();
  std::cout << commented(deeds(after.applied))
            << fmt::format("# against {}: + new, - gone, ~ changed; {} -> {} morphisms\n{}",
                           named ? "the step with the defaults only" : "the plain step",
                           before.morphisms.size(), after.scheme.morphisms.size(), difference);
  return kDone;
}

int show_stack(const ShowFlags& flags, const BoundModel& model, Level level) {
  std::optional<Activity> activity(std::in_place, kApplying);
  const Stack stack = parse_stack(*flags.stack);
  const Scheme forward = model.forward();
  std::vector<Firing> firings;
  const BuiltStep after =
      build_step(forward, stack, flags.options, flags.json ? &firings : nullptr);
  if (flags.json) {
    nlohmann::json out = head_of(flags, model, after.scheme);
    out["stack"] = print(stack);
    out["law"] = name(law_of(stack));
    out["against"] = against(stack);
    out["applied"] = applied_json(after.applied, stack, firings);
    add_scheme(out, after.scheme, level, nullptr);
    activity.reset();
    return print_json(out);
  }
  const bool named = !print(stack).empty();
  const Scheme before = build_step(forward, beside(stack), flags.options).scheme;
  activity.reset();
  std::cout << fmt::format("# before: {}, {} morphisms\n{}\n",
                           named ? "the step with the defaults only" : "the plain step",
                           before.morphisms.size(), level_text(before, level, nullptr))
            << commented(stack_table(after.applied))
            << fmt::format("\n# after: {} morphisms\n{}", after.scheme.morphisms.size(),
                           level_text(after.scheme, level, nullptr));
  return kDone;
}

// The step and its plan are those of `adjoint plan` with the same flags. Workspaces are left out,
// but the order of the calls is chosen by a peak that includes them, so threads and the device
// count.
int show_memory_states(const ShowFlags& flags, const BoundModel& model) {
  std::optional<Activity> activity(std::in_place, "planning");
  const Scheme forward = model.forward();
  const Stack stack = parse_stack(flags.stack.value_or(""));
  StepOptions options = flags.options;
  options.stack = print(stack);
  const Scheme said = said_step(forward, stack, options);
  const Scheme step = build_step(forward, stack, options).scheme;
  share_cores(flags.threads, num_ranks(step.mesh));
  const PlanOptions planned = plan_options(costs_for(flags.wish, model, num_threads()));
  if (flags.json) {
    nlohmann::json out = head_of(flags, model, step);
    out.erase("level");
    out["stack"] = print(stack);
    out.update(memory_states_json(said, step, planned));
    activity.reset();
    return print_json(out);
  }
  const std::string table = memory_states_table(said, step, planned);
  activity.reset();
  std::cout << table;
  return kDone;
}

int show_text(const ShowFlags& flags) {
  const ModelText text = find_model(flags.model.model);
  if (!flags.json) {
    std::cout << text.text;
    return kDone;
  }
  return print_json(
      {{"file", text.file},
       {"preset", text.preset},
       {"text", text.written},
       {"document", document_json(parse_document(text.text, text.file), text.written)}});
}

// The model as a diagram, and with a stack what the stack makes of it, linked by source.
int write_diagram(const ShowFlags& flags, const BoundModel& model) {
  if (!flags.viete.ends_with(".json")) {
    fail("--viete: wanted a file that ends in .json, found '", flags.viete, "'");
  }
  nlohmann::json diagram = viete_diagram(model.document(), model.name());
  if (flags.stack) {
    const Activity activity(kApplying);
    const Stack stack = parse_stack(*flags.stack);
    const Scheme before = model.forward();
    add_viete_mapping(diagram, before, build_step(before, stack, flags.options).scheme,
                      print(stack), law_of(stack) == Law::kExact && against(stack).empty());
  }
  std::string text;
  try {
    text = diagram.dump(1);
  } catch (const nlohmann::json::exception&) {
    fail(model.name(), ": this text is not UTF-8, so JSON cannot hold it");
  }
  write_file_atomically(flags.viete, text + "\n");
  return kDone;
}

int show_scheme(const ShowFlags& flags, const BoundModel& model, Level level) {
  Written written;
  std::optional<Activity> activity(std::in_place, "writing the scheme");
  const Scheme forward = model.forward(written);
  const Scheme scheme = flags.step ? training_step(forward, flags.options) : forward;
  if (flags.json) {
    nlohmann::json out = head_of(flags, model, scheme);
    const WrittenIn in_text{.places = written, .text = model.text().written};
    add_scheme(out, scheme, level, flags.step ? nullptr : &in_text);
    activity.reset();
    return print_json(out);
  }
  activity.reset();
  if (level != Level::kOp) std::cout << head_in_words(model, scheme);
  std::cout << level_text(scheme, level, flags.step ? nullptr : &written);
  return kDone;
}

int run(ShowFlags flags) {
  if (flags.memory_states && (flags.diff || flags.step || flags.text)) {
    fail("--memory-states is a table of its own: leave --diff, --step and --text out");
  }
  if (flags.diff && !flags.stack) fail("--diff: wanted --stack too: what should differ?");
  const Level level = level_named(flags.level);
  if (level != Level::kOp && (flags.diff || flags.memory_states || flags.text)) {
    fail("--level ", flags.level,
         " is a view of a scheme: leave --diff, --memory-states and --text out");
  }
  if (flags.text) return show_text(flags);
  if (!(flags.options.clip >= 0)) fail("--clip: wanted 0 or more, found ", flags.options.clip);
  use_threads(flags.threads);
  const BoundModel model = bound_model(flags.model);
  if (flags.of_step() || flags.memory_states) {
    flags.options.target = plan_options(costs_for(flags.wish, model, num_threads())).target;
  }
  if (!flags.viete.empty()) return write_diagram(flags, model);
  if (flags.memory_states) return show_memory_states(flags, model);
  if (flags.diff) return show_difference(flags, model);
  if (flags.stack) return show_stack(flags, model, level);
  return show_scheme(flags, model, level);
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "print a model's scheme, or its step before and after a stack");
  auto flags = std::make_shared<ShowFlags>();
  flags->options.on_mesh = true;  // shards and collectives are shown
  flags->model.add_to(*command);
  command->add_option("--vocab", flags->model.vocab, "tokens of the vocabulary; 0: the model's");
  command->add_flag("--text", flags->text, "the model as it was written");
  command
      ->add_option("--level", flags->level,
                   "how near: chain (a line per call of the model, block^12 is one), block (and "
                   "what a repeated box does), op (every call, in the flat notation)")
      ->capture_default_str();
  command->add_flag("--step", flags->step, "the training step: gradients and updates too");
  command->add_option("--optimizer", flags->options.optimizer, run_help("optimizer"))
      ->capture_default_str();
  command
      ->add_option("--clip", flags->options.clip,
                   "0: no clipping, so each gradient dies in its update")
      ->capture_default_str();
  command->add_option("--stack", flags->stack,
                      "the step before and after these functors, with what they matched; '' shows "
                      "what the defaults do");
  command->add_flag("--diff", flags->diff,
                    "with --stack: what each functor did, in a line, and then only what is new, "
                    "gone or changed");
  command->add_flag("--memory-states", flags->memory_states,
                    "what of the step's activations is alive after each block of the chain, or of "
                    "a pipeline after each slot, as a product with bytes");
  command
      ->add_option("--device", flags->wish.device,
                   "the step is made for this, as `plan` makes it: a name, or a .device file")
      ->capture_default_str();
  command->add_option(
      "--profile", flags->wish.profile,
      "a folder of `adjoint profile` of this model: the step is made for the device "
      "that was measured");
  command->add_option("--threads", flags->threads,
                      "CPU threads for which --memory-states plans; 0: as many as there are cores");
  command->add_option("--ranks", flags->options.ranks, kRanksHelp);
  command->add_option("--viete", flags->viete,
                      "write the model into this .json file, as a diagram that Viete's editor "
                      "imports; with --stack also what the stack makes of it, linked by source");
  command->add_flag("--json", flags->json, "as JSON; with --stack of the step after it");
  command->footer(
      "Examples:\n"
      "  adjoint show --model gpt2 --text\n"
      "  adjoint show --model gpt2 --level chain\n"
      "  adjoint show --model gpt2 --set layers=1 --step\n"
      "  adjoint show --model gpt2 --set layers=2 --stack 'lora(rank=8)' --diff\n"
      "  adjoint show --model gpt2 --viete gpt2.json\n"
      "  adjoint show --model char --set layers=6 --stack 'checkpoint(every=3)' "
      "--memory-states --threads 2");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
