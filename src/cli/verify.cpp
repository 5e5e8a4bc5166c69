// adjoint verify: a stack's laws, checked on the user's own model.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/note.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/step_flags.h"
#include "device/parallel.h"
#include "laws/composition.h"
#include "report/composition_json.h"
#include "run/machine.h"
#include "train/late_progress.h"
#include "train/settings_text.h"

namespace adjoint {

namespace {

struct VerifyFlags {
  std::string model = "gpt2", stack;
  VerifyOptions options;
  std::vector<std::string> set;
  int64_t threads = 0;
  std::vector<std::string> with;
  std::string device = "cpu";
  bool json = false, matrix = false;
};

// A tensor of any step.
std::string tensor_of(const TensorKey& key) {
  return key.kind == TensorKey::Kind::kGradient ? "the gradient of " + key.source : key.source;
}

int print_matrix(const VerifyFlags& flags) {
  CompositionOptions options{.models = {find_model("char"), find_model("llama-tiny")}};
  for (const std::string& model : flags.with) options.models.push_back(find_model(model));
  const Composition composition = [&] {
    LateProgress progress("composing functors");
    return compose_all(options, progress.told());
  }();
  if (flags.json) {
    print_answer("verify", composition_json(composition));
  } else {
    std::cout << to_markdown(composition);
  }
  return composition.ok() ? kDone : kBadInput;
}

nlohmann::json to_json(const Moved& moved) {
  return {{"loss", moved.loss},
          {"gradients", moved.gradients ? nlohmann::json(*moved.gradients) : nlohmann::json()}};
}

bool is_noisy(const Report& report) {
  return std::any_of(report.functors.begin(), report.functors.end(),
                     [](const Verdict& v) { return !v.too_noisy.empty(); });
}

nlohmann::json noisy_json(const Verdict& verdict) {
  nlohmann::json noisy = nlohmann::json::object();
  for (const auto& [key, allowed] : verdict.too_noisy) noisy[tensor_of(key)] = allowed;
  return noisy;
}

nlohmann::json to_json(const Report& report) {
  nlohmann::json functors = nlohmann::json::array();
  for (const Verdict& v : report.functors) {
    functors.push_back({{"name", v.functor},
                        {"law", name(v.law)},
                        {"against", v.against},
                        {"default", v.by_default},
                        {"matches", v.matches},
                        {"ok", v.ok},
                        {"max_error", v.error},
                        {"tensor", v.tensor},
                        {"plain_error", v.plain_error},
                        {"allowed", v.allowed},
                        {"too_noisy", noisy_json(v)}});
    if (!v.note.empty()) functors.back()["note"] = v.note;
    if (v.moved) functors.back()["from_model_without_it"] = to_json(*v.moved);
  }
  nlohmann::json whole = report.moved ? to_json(*report.moved) : nlohmann::json();
  return {{"ok", report.ok},
          {"proven", report.ok && report.unseen.empty() && !is_noisy(report)},
          {"law", name(report.law)},
          {"against", report.against},
          {"refused", report.refused},
          {"reason", report.reason},
          {"functors", functors},
          {"sizes", report.sizes},
          {"smallest_broken_stack", report.smallest},
          {"max_error", report.max_error},
          {"plain_error", report.plain_error},
          {"from_plain_model", std::move(whole)},
          {"not_seen", report.unseen},
          {"doubts", report.doubts}};
}

std::string number(double n) { return n == 0 ? "0" : fmt::format("{:.2g}", n); }

// What an approximating functor or stack costs beside its law.
std::string words(const Moved& moved) {
  return "loss " + number(moved.loss) +
         (moved.gradients ? ", gradients " + number(*moved.gradients) : ", no gradient in common");
}

std::string word_for(const Verdict& verdict) {
  if (!verdict.ok) return "BROKEN";
  if (verdict.too_noisy.empty()) return "ok";
  return verdict.judged.empty() ? "too noisy to judge" : "ok where it could be judged";
}

// Which tensors judge nothing, and what would.
std::string noise_in_words(const Verdict& verdict) {
  const auto noisiest =
      std::max_element(verdict.too_noisy.begin(), verdict.too_noisy.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const size_t others = verdict.too_noisy.size() - 1;
  return fmt::format(
      "too noisy to judge here: {}{} (rounding alone explains an error of {:.2g}, so a mistake of "
      "that size would pass); {} would judge",
      tensor_of(noisiest->first), others > 0 ? fmt::format(" and {} more", others) : "",
      noisiest->second,
      verdict.narrow ? "the same stack without 16-bit floats, more samples (--batch) or --full"
                     : "more samples (--batch) or --full");
}

// The law of the stack, and of what it is true.
std::string law_in_words(const Report& report) {
  const std::string law(name(report.law));
  const std::string than =
      report.against.empty() ? "the step as it comes" : "the step with " + report.against;
  if (report.law == Law::kExact) return law + " (not a bit differs from " + than + ")";
  return report.against.empty() ? law : law + " against " + than;
}

std::string verdict_of(const Report& report, const std::string& stack) {
  const std::string distances = fmt::format(
      "its gradients are within {:.2g} of {} in float64, the plain step's within {:.2g}\n",
      report.max_error, report.moved ? "its own function" : "the model", report.plain_error);
  std::string out;
  if (report.unseen.empty() && is_noisy(report)) {
    out = fmt::format(
        "\n{} broke no law where it could be judged, but {} not said to be {}: some tensors are "
        "too "
        "noisy here\n{}",
        stack.empty() ? "the step as it comes" : "the stack '" + stack + "'",
        stack.empty() ? "its defaults are" : "it is", law_in_words(report), distances);
  } else if (report.unseen.empty()) {
    // What is on by default has laws of its own, in the table above.
    out = stack.empty()
              ? fmt::format("\nthe step as it comes, with what is on by default: {}", distances)
              : fmt::format("\nthe stack '{}' is {}: {}", stack, law_in_words(report), distances);
  } else {
    out = fmt::format(
        "\nthe stack '{}' broke no law here, but it is not said to be {}: what follows acts in the "
        "model and nowhere in the copies (--full checks the model itself)\n",
        stack, law_in_words(report));
    for (const std::string& what : report.unseen) out += "  " + what + "\n";
    out += distances;
  }
  if (report.moved) {
    out += "from the model without it, with the same weights and batch: " + words(*report.moved) +
           "\n";
  }
  return out;
}

std::string table(const Report& report, const std::string& stack) {
  std::string out;
  for (const std::string& size : report.sizes) out += "checked at " + size + "\n";
  size_t width = 10;
  for (const Verdict& v : report.functors) width = std::max(width, v.functor.size());
  out += fmt::format("\n{:<{}}  {:<14} {:>8}  {:>9}  {:>9}\n", "functor", width, "law", "matches",
                     "error", "allowed");
  for (const Verdict& v : report.functors) {
    out += fmt::format("{:<{}}  {:<14} {:>8}  {:>9}  {:>9}  {}{}\n", v.functor, width, name(v.law),
                       v.matches, number(v.error), number(v.allowed), word_for(v),
                       v.by_default ? "  (on by default)" : "");
    if (!v.too_noisy.empty()) out += fmt::format("{:<{}}  {}\n", "", width, noise_in_words(v));
    if (!v.against.empty()) out += fmt::format("{:<{}}  against {}\n", "", width, v.against);
    // An error says little without what it is an error of: most of a small tensor's may be noise.
    if (v.error > 0 && !v.tensor.empty()) {
      out += fmt::format("{:<{}}  nearest to what is allowed: {}\n", "", width, v.tensor);
    }
    if (v.moved) {
      out += fmt::format("{:<{}}  from the model without it: {}\n", "", width, words(*v.moved));
    }
    if (!v.note.empty()) out += fmt::format("{:<{}}  {}\n", "", width, v.note);
  }
  if (report.ok) out += verdict_of(report, stack);
  return out;
}

int run(VerifyFlags flags) {
  VerifyOptions& options = flags.options;
  if (options.sizes.batch < 0) fail("--batch: wanted at least 1, found ", options.sizes.batch);
  if (options.sizes.context < 0)
    fail("--context: wanted at least 1, found ", options.sizes.context);
  if (options.seeds < 1 || options.seeds > 1000) {
    fail("--seeds: wanted 1 to 1000, found ", options.seeds);
  }
  use_threads(flags.threads);
  options.target = target_named(flags.device);
  if (flags.matrix) return print_matrix(flags);
  for (const std::string& s : flags.set) options.sizes.settings.update(parse_setting(s));
  Report report;
  try {
    const ModelText text = find_model(flags.model);
    const Stack stack = parse_stack(flags.stack);
    LateProgress progress("verifying");
    report = verify_model(text, stack, options, progress.told());
  } catch (const Error& e) {
    if (!flags.json) throw;
    report = {.ok = false, .refused = true, .reason = e.what()};
  }
  for (const std::string& doubt : report.doubts) warn_once(doubt);
  if (flags.json) {
    print_answer("verify", to_json(report));
  } else if (!report.refused) {
    std::cout << table(report, flags.stack);
  }
  std::cout.flush();
  if (report.ok) return kDone;
  if (!flags.json) {
    std::cerr << (report.refused ? "adjoint: " : "verify: ") << report.reason << "\n";
    if (!report.refused && report.smallest != flags.stack) {
      std::cerr << "verify: the smallest stack that breaks it: " << report.smallest << "\n";
    }
  }
  return kBadInput;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "check the laws of a stack on a small copy of your own model");
  auto flags = std::make_shared<VerifyFlags>();
  command->add_option("--model", flags->model, "a preset or a .scheme file")->capture_default_str();
  command->add_option("--stack", flags->stack, "functors joined by '|'");
  command->add_option("--set", flags->set, "settings of the model by name, such as layers=2");
  command
      ->add_option("--seeds", flags->options.seeds, "how many times, each from another beginning")
      ->capture_default_str();
  command->add_flag("--full", flags->options.full, "at the model's real size");
  command->add_option("--batch", flags->options.sizes.batch, "samples per step; 0: a few");
  command->add_option("--context", flags->options.sizes.context, "tokens per sample; 0: a few");
  command->add_option("--optimizer", flags->options.step.optimizer, run_help("optimizer"))
      ->capture_default_str();
  command->add_option("--ranks", flags->options.step.ranks, kRanksHelp);
  command->add_option("--clip", flags->options.step.clip, "0: no clipping")->capture_default_str();
  command->add_option("--device", flags->device, "whose kernels are checked: cpu or cuda")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  command->add_flag("--json", flags->json, "as JSON");
  command->add_flag(
      "--matrix", flags->matrix,
      "print which functors compose, two by two and in longer stacks, on small models");
  command->add_option("--with", flags->with, "a further model for --matrix");
  command->footer(
      "Examples:\n"
      "  adjoint verify --model gpt2 --stack \"checkpoint(every=2) | accumulate(4)\"\n"
      "  adjoint verify --model my.scheme --stack bf16 --json\n"
      "Exit code 1: a law is broken, or the stack is refused.");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
