#include "train/doubts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/counts.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "base/text.h"
#include "device/limits.h"
#include "functors/optimizer_text.h"
#include "train/schedule.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr double kFarFromUsual = 100;  // times

std::string percent(int64_t some, int64_t all) {
  return fmt::format("{:.3g}%", 100.0 * static_cast<double>(some) / static_cast<double>(all));
}

std::string shown(const json& value) {
  if (value.is_string()) return value == "" ? "none" : value.get<std::string>();
  return value.dump();
}

// --lr 0.5
std::string as_said(const OptionSpec& option, const json& value) {
  return option.flag() + (value.is_boolean() ? "" : " " + shown(value));
}

// An optimizer with a second momentum divides by the gradient's size, so that its steps are as
// large as the rate; the others' rates are of all sizes.
bool has_second_momentum(const StepOptions& step) {
  const Optimizer optimizer = find_optimizer(step.optimizer, step);
  return std::any_of(optimizer.params.begin(), optimizer.params.end(),
                     [](const FunctorParam& param) { return param.name == "beta2"; });
}

// How a folder of Hugging Face's format writes conversations, in Jinja; "" where it does not say.
std::string chat_template_of(const std::string& folder) {
  if (folder.empty()) return "";
  const std::filesystem::path at = folder;
  if (is_visible(at / "chat_template.jinja")) return read_file(at / "chat_template.jinja");
  if (!is_visible(at / "tokenizer_config.json")) return "";
  const json config = read_json(at / "tokenizer_config.json");
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const json& own = config["chat_template"];
  return own.is_string() ? own.get<std::string>() : own.dump();  // several, by name
}

}  // namespace

std::vector<std::string> doubts_about(const TrainConfig& c, const std::set<std::string>& said) {
  std::vector<std::string> doubts;
  for (const OptionSpec& option : c.options()) {
    if (said.count(option.name) == 0) continue;
    const json& value = c.values()[option.name];
    const OptionTraits& traits = option.traits;
    if (traits.of_beginning && c.resume) {
      doubts.push_back(as_said(option, value) +
                       " does nothing beside --resume: " + traits.of_beginning);
      continue;
    }
    if (traits.goes_with.option) {
      const OptionSpec& other = option_named(c.options(), traits.goes_with.option);
      const json& is = c.values()[other.name];
      const auto& works = traits.goes_with.values;
      if (std::find(works.begin(), works.end(), shown(is)) == works.end()) {
        doubts.push_back(fmt::format("{} does nothing beside {}: it goes with {} {}",
                                     as_said(option, value), as_said(other, is), other.flag(),
                                     join(works, " or ")));
      }
    }
    if (traits.past_the_end && value.is_number_integer() && value.get<int64_t>() > c.steps) {
      doubts.push_back(fmt::format("{}: the run has {} steps, so {}", as_said(option, value),
                                   c.steps, traits.past_the_end));
    }
  }
  const RateSchedule schedule(c);
  if (c.warmup > 0 && c.warmup >= c.steps) {
    doubts.push_back(fmt::format("--warmup {}: the run has {} steps, so the rate never reaches {}",
                                 c.warmup, c.steps, shortest(schedule.peak)));
  }
  const auto usual = option_named(c.options(), "lr").otherwise.get<double>();
  const double most = usual * kFarFromUsual;
  if (schedule.peak > most || (schedule.peak == most && has_second_momentum(c.step))) {
    doubts.push_back(
        fmt::format("--lr {}: this is {} times the usual {}, and such steps ruin most "
                    "models",
                    shortest(schedule.peak), shortest(schedule.peak / usual), shortest(usual)));
  }
  return doubts;
}

std::vector<std::string> doubts_about_threads(int64_t threads, int64_t ranks) {
  const int cores = available_processors();
  // More ranks than cores are how ranks are tried out.
  if (threads == 1 || threads * ranks <= cores) return {};
  const std::string who = ranks > 1
                              ? fmt::format("{} ranks of {}", ranks, counted(threads, "thread"))
                              : counted(threads, "thread");
  return {fmt::format("{}: this machine has {} core{}, so threads wait for each other", who, cores,
                      cores == 1 ? "" : "s")};
}

std::vector<std::string> doubts_about_data(int64_t batch, int64_t context, int64_t tokens) {
  if (batch * context <= tokens) return {};
  return {
      fmt::format("--batch {}: a step reads {} x {} tokens, and there are {} to train on, so it "
                  "reads some of them several times",
                  batch, batch, context, tokens)};
}

std::vector<std::string> doubts_about_silence(const TrainingPart& part,
                                              const std::vector<DocumentPlace>& places) {
  if (part.silent == 0) return {};
  std::vector<std::string> named;
  for (const DocumentPlace& place : places) {
    if (place.file.empty()) continue;
    named.push_back(place.file.string() +
                    (place.line > 0 ? ": line " + std::to_string(place.line) : ""));
  }
  const std::string first = named.empty()                     ? ""
                            : part.silent > std::ssize(named) ? "; the first: " + join(named, ", ")
                                                              : "; " + join(named, ", ");
  return {fmt::format("{} of {} documents ({}) hold nothing that is learned{}",
                      with_commas(part.silent), with_commas(part.documents),
                      percent(part.silent, part.documents), first)};
}

std::vector<std::string> notes_about_length(const TrainingPart& part, int64_t context) {
  if (part.longer == 0) return {};
  return {fmt::format(
      "{} of {} documents are longer than a sample of {} tokens (--seq), and {} of all tokens are "
      "beyond it: they are read in samples of their own, without what stands before them",
      with_commas(part.longer), with_commas(part.documents), context,
      percent(part.beyond, part.tokens))};
}

std::vector<std::string> doubts_about_template(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                               const std::string& folder) {
  std::vector<std::string> doubts;
  const std::string whose = folder.empty() ? "the tokenizer" : "the tokenizer of " + folder;
  if (const auto marks = marks_spelled_out(chat, tokenizer); !marks.empty()) {
    doubts.push_back(fmt::format(
        "the template {} writes {}, and {} ({}) has no such {}: the model reads {} as text",
        chat.file(), join(marks, ", "), whose, tokenizer.kind(),
        marks.size() == 1 ? "token" : "tokens", marks.size() == 1 ? "it" : "them"));
  }
  const std::string own = chat_template_of(folder);
  if (!own.empty() && !chat.mark().empty() && own.find(chat.mark()) == own.npos) {
    doubts.push_back(
        fmt::format("the template {} writes {}, which the chat template of {} does not",
                    chat.file(), chat.mark(), folder));
  }
  return doubts;
}

std::vector<std::string> doubts_about_frozen(int64_t parameters, int64_t trained) {
  const int64_t frozen = parameters - trained;
  if (2 * frozen <= parameters) return {};
  return {
      fmt::format("{} of {} parameters stay at random initial values, because they are frozen; "
                  "did you mean --init FOLDER?",
                  with_commas(frozen), with_commas(parameters))};
}

std::vector<ChangedOption> changed_options(const json& was, const json& is,
                                           const std::map<std::string, double>& own) {
  std::vector<ChangedOption> changed;
  const auto compare = [&](const std::string& name, const json& before, const json& now) {
    if (!before.is_null() && before != now) changed.push_back({name, shown(before), shown(now)});
  };
  const auto at = [](const json& object, const std::string& name) {
    return object.contains(name) ? object[name] : json();
  };
  for (const OptionSpec& option : train_options()) {
    if (option.name == "out" || option.traits.of_command) continue;
    compare(option.name, at(was, option.name), at(is, option.name));
  }
  const json then = at(was, "set"), now = at(is, "set");
  std::set<std::string> names;
  for (const json* const set : {&then, &now}) {
    for (const auto& [name, value] : set->items()) names.insert(name);
  }
  const auto said_or_own = [&](const json& set, const std::string& name) {
    if (set.contains(name)) return set[name];
    const auto found = own.find(name);
    return found == own.end() ? json("unsaid") : json(found->second);
  };
  for (const std::string& name : names) {
    compare("set " + name, said_or_own(then, name), said_or_own(now, name));
  }
  return changed;
}

std::vector<ResumedDoubt> doubts_of_resuming(const std::vector<ChangedOption>& changed,
                                             const TrainConfig& was, const TrainConfig& is,
                                             int64_t steps_done) {
  const RateSchedule before(was), now(is);
  bool same_rates = true;
  for (int64_t step = 0; step < steps_done && same_rates; ++step) {
    same_rates = before.rate(step) == now.rate(step);
  }
  const auto is_length = [](const ChangedOption& c) {
    return c.name == "steps" || c.name == "epochs";
  };
  const auto only_watches = [&](const ChangedOption& c) {
    if (c.name.starts_with("set ")) return false;
    // What a spike leads back to is the last save.
    if (c.name == "save_every" && is.on_spike == "back") return false;
    // By what evaluations say a run with patience ends.
    if (c.name.starts_with("eval_") && is.patience > 0) return false;
    return option_named(train_options(), c.name).traits.only_watches;
  };
  std::vector<std::string> matter, length, watch;
  bool longer_alone = true;
  for (const ChangedOption& c : changed) {
    const bool of_length = is_length(c);
    if (only_watches(c)) {
      watch.push_back(c.in_words());
    } else if (of_length && same_rates) {
      length.push_back(c.in_words());
    } else {
      matter.push_back(c.in_words());
      longer_alone = longer_alone && of_length;
    }
  }
  const std::string differ = "these settings differ from the resumed run's: ";
  std::vector<ResumedDoubt> doubts;
  if (!matter.empty()) {
    doubts.push_back({differ + join(matter, ", ") +
                      (longer_alone ? fmt::format("; by the schedule of this length steps 1 to {} "
                                                  "would have had other rates",
                                                  steps_done)
                                    : "")});
  }
  if (!length.empty()) doubts.push_back({differ + join(length, ", "), false});
  if (!watch.empty()) {
    doubts.push_back({differ + join(watch, ", ") + "; no parameter depends on them", false});
  }
  return doubts;
}

}  // namespace adjoint
