#include "cli/complete.h"

#include <algorithm>
#include <iostream>
#include <set>

#include "base/error.h"
#include "functors/functor.h"
#include "models/library.h"
#include "scheme/document.h"

namespace adjoint {

namespace {

using Paths = ValueKind::Paths;

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }
bool takes_several(const CLI::Option& option) {
  return option.get_items_expected_max() > 1 && option.get_allow_extra_args();
}
bool may_repeat(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

const CLI::App* sub_named(const CLI::App& command, const std::string& word) {
  for (const CLI::App* sub : command.get_subcommands(nullptr)) {
    if (sub->get_name() == word) return sub;
  }
  return nullptr;
}

// Where the words before the last one lead.
struct TypedSoFar {
  const CLI::App* command;
  const CLI::Option* open = nullptr;  // a flag whose values follow
  bool must = false;                  // and that has none yet
  size_t positionals = 0;             // that were given
  std::set<const CLI::Option*> given = {};
  std::string model = {};  // that --model named
};

TypedSoFar read_words(const CLI::App& app, std::span<const std::string> words) {
  TypedSoFar at{.command = &app};
  for (const std::string& word : words) {
    if (at.open && at.must) {
      if (at.open->check_name("--model")) at.model = word;
      at.must = false;
      if (!takes_several(*at.open)) at.open = nullptr;
    } else if (word == "--") {
      at = TypedSoFar{.command = &app};  // a whole command follows, as behind `launch -n 4 --`
    } else if (word.size() > 1 && word[0] == '-') {
      const size_t equals = word.find('=');
      const CLI::Option* option = at.command->get_option_no_throw(word.substr(0, equals));
      at.given.insert(option);
      const bool follows = option && equals == word.npos && takes_value(*option);
      at.open = follows ? option : nullptr;
      at.must = follows;
      if (option && !follows && option->check_name("--model")) at.model = word.substr(equals + 1);
    } else if (!at.open) {
      if (const CLI::App* sub = sub_named(*at.command, word)) {
        at.command = sub;
      } else {
        ++at.positionals;
      }
    }
  }
  return at;
}

void offer(Candidates& found, const std::string& typed, std::string word,
           std::string summary = "") {
  if (word.starts_with(typed)) found.words.push_back({std::move(word), std::move(summary)});
}

// A stack goes on behind its last bar.
void add_functors(Candidates& found, const std::string& typed) {
  size_t begin = typed.rfind('|');
  begin = begin == typed.npos ? 0 : begin + 1;
  while (begin < typed.size() && typed[begin] == ' ') ++begin;
  const std::string before = typed.substr(0, begin);
  for (const Functor* functor : all_functors()) {
    if (functor->of_forward) continue;
    offer(found, typed, before + functor->name, functor->summary);
    if (functor->by_default && typed.size() > begin) {
      offer(found, typed, before + "-" + functor->name, "without it");
    }
  }
}

// Settings of the model at hand; of one that cannot be read there are none.
void add_settings(Candidates& found, const TypedSoFar& at, const std::string& typed) {
  found.open = true;
  const CLI::Option* model = at.command->get_option_no_throw("--model");
  try {
    const ModelText text =
        find_model(at.model.empty() && model ? model->get_default_str() : at.model);
    const Document document = parse_document(text.text, text.file);
    for (const auto& settings : {document.axes, document.numbers}) {
      for (const Setting& setting : settings) offer(found, typed, setting.name + "=");
    }
  } catch (const std::exception&) {
  }
}

Candidates values(const TypedSoFar& at, const CLI::Option& option, const std::string& typed) {
  Candidates found;
  const ValueKind* kind = value_kind(*at.command, option);
  if (!kind) return found;
  found.paths = kind->paths;
  for (const std::string& choice : kind->choices) offer(found, typed, choice);
  if (kind->word == "STACK") {
    add_functors(found, typed);
  } else if (option.check_name("--set")) {
    add_settings(found, at, typed);
  } else if (kind->names) {
    for (const std::string& name : kind->names()) offer(found, typed, name);
  }
  return found;
}

// --flag=value, in one word.
Candidates values_behind_equals(const TypedSoFar& at, const std::string& typed) {
  const size_t equals = typed.find('=');
  const CLI::Option* option = at.command->get_option_no_throw(typed.substr(0, equals));
  if (!option || !takes_value(*option)) return {};
  Candidates found = values(at, *option, typed.substr(equals + 1));
  for (Candidate& c : found.words) c.word.insert(0, typed, 0, equals + 1);
  return found;
}

void add_flags(Candidates& found, const TypedSoFar& at, const std::string& typed) {
  for (const CLI::Option* option : at.command->get_options()) {
    if (at.given.count(option) > 0 && !may_repeat(*option)) continue;
    for (const std::string& name : option->get_lnames()) {
      offer(found, typed, "--" + name, option->get_description());
    }
    for (const std::string& name : option->get_snames()) {
      offer(found, typed, "-" + name, option->get_description());
    }
  }
}

// One line, short enough to stand beside its word.
std::string summary_line(std::string text) {
  constexpr size_t kMost = 72;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (text.size() <= kMost) return text;
  const size_t space = text.rfind(' ', kMost - 4);
  return text.substr(0, space) + " ...";
}

}  // namespace

Candidates candidates(const CLI::App& app, std::span<const std::string> words) {
  const std::string typed = words.empty() ? "" : words.back();
  const TypedSoFar at = read_words(app, words.first(words.empty() ? 0 : words.size() - 1));
  if (at.open && at.must) return values(at, *at.open, typed);
  Candidates found;
  if (typed.starts_with("-")) {
    if (typed.find('=') != typed.npos) return values_behind_equals(at, typed);
    add_flags(found, at, typed);
    return found;
  }
  if (at.open) return values(at, *at.open, typed);
  for (const CLI::App* sub : at.command->get_subcommands(nullptr)) {
    if (!sub->get_group().empty()) offer(found, typed, sub->get_name(), sub->get_description());
  }
  const auto positionals =
      at.command->get_options([](const CLI::Option* o) { return o->get_positional(); });
  if (!positionals.empty()) {
    const CLI::Option& next = *positionals[std::min(at.positionals, positionals.size() - 1)];
    if (at.positionals < positionals.size() || takes_several(next)) return values(at, next, typed);
  }
  if (found.words.empty() && typed.empty()) add_flags(found, at, typed);
  return found;
}

void print_candidates(const Candidates& found) {
  std::cout << (found.paths == Paths::kFiles     ? "files"
                : found.paths == Paths::kFolders ? "folders"
                                                 : "words")
            << (found.open ? " open" : "") << "\n";
  for (const Candidate& c : found.words)
    std::cout << c.word << "\t" << summary_line(c.summary) << "\n";
}

}  // namespace adjoint
