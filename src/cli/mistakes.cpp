#include "cli/mistakes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file_view.h"
#include "base/text.h"
#include "cli/values.h"
#include "functors/near_functor.h"
#include "models/library.h"
#include "train/config.h"
#include "train/settings_text.h"

namespace adjoint {

namespace {

std::string full_name(const CLI::App& command) {
  const CLI::App* const above = command.get_parent();
  return above ? full_name(*above) + " " + command.get_name() : command.get_name();
}

const CLI::App* command_named(const CLI::App& app, const std::string& word) {
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_name() == word) return sub;
  }
  return nullptr;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

// With their dashes.
std::vector<std::string> names_of_flags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::Option* flag_named(const CLI::App& command, const std::string& flag) {
  return flag.starts_with('-') ? command.get_option_no_throw(flag) : nullptr;
}

bool takes_a_word(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

// --n-layer 6 is --set layers=6; `exactly`: no name that is only near.
std::string said_by_set(const CLI::App& command, std::string word, const std::string& value,
                        bool exactly) {
  if (!flag_named(command, "--set")) return "";
  word = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  std::replace(word.begin(), word.end(), '-', '_');
  const std::map<std::string, std::string> names = names_of_settings();
  std::vector<std::string> settings;
  for (const auto& [name, setting] : names) settings.push_back(name);
  const std::string near = names.count(word) > 0 ? word : exactly ? "" : nearest(word, settings);
  if (near.empty()) return "";
  const std::string& name = names.at(near);
  const std::string number = value.empty() ? "N" : value;
  if (flag_named(command, "--" + name)) return "; did you mean '--" + name + " " + number + "'?";
  return "; '" + name + "' is a number of the model: did you mean '--set " + name + "=" + number +
         "'?";
}

// '--stack "bf16 | lora"': what a shell can be told; a stack may have quotes of its own.
std::string with_stack(const std::string& stack) {
  if (stack.find('"') != stack.npos) return "--stack '" + stack + "'";
  const bool plain = stack.find_first_of(" |()'") == stack.npos;
  return "'--stack " + (plain ? stack : '"' + stack + '"') + "'";
}

// --gradient-accumulation-steps 4 is --stack 'accumulate(4)', and --precision bf16 is --stack bf16.
std::string said_by_stack(const CLI::App& command, const std::string& word,
                          const std::string& value) {
  if (!flag_named(command, "--stack")) return "";
  std::string functor = functor_called(value);
  if (functor.empty()) functor = functor_called(word);
  if (functor.empty()) return "";
  const bool number = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
  return "; did you mean " + with_stack(number ? functor + "(" + value + ")" : functor) + "?";
}

// Flags that are none by themselves: a choice (--cuda), what other programs call a flag, a functor,
// a model's number (--layers 4).
std::string said_otherwise(const CLI::App& command, const std::string& flag,
                           const std::string& value) {
  const std::string word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  for (const OptionSpec& option : train_options()) {
    if (!flag_named(command, option.flag())) continue;
    const std::string_view other = option.traits.meant ? option.traits.meant(word) : "";
    const std::string choice = other.empty() ? word : std::string(other);
    const auto& all = option.choices;
    if (std::find(all.begin(), all.end(), choice) == all.end()) continue;
    return "; did you mean '" + option.flag() + " " + choice + "'?";
  }
  const std::string called = called_elsewhere(command, flag);
  if (!called.empty()) return "; did you mean '" + called + "'?";
  const std::string functor = said_by_stack(command, word, value);
  return functor.empty() ? flag_said_instead(command, flag, value) : functor;
}

// One letter is an edit away from every other letter, so it means the one flag that begins with it.
std::string nearest_flag(const CLI::App& command, const std::string& flag,
                         const std::string& value) {
  const std::vector<std::string> names = names_of_flags(command);
  // What is written NAME=NUMBER only --set takes.
  if (value.find('=') != value.npos && flag_named(command, "--set")) {
    const std::string set = did_you_mean(flag, {"--set"});
    if (!set.empty()) return set;
  }
  if (flag.size() != 2 || flag == "--") return did_you_mean(flag, names);
  std::vector<std::string> begin;
  for (const std::string& name : names) {
    if (name.starts_with("-" + flag)) begin.push_back(name);
  }
  return begin.size() == 1 ? "; did you mean '" + begin[0] + "'?" : "";
}

// What stands between the words of one value that were not quoted together: --stack bf16 lora.
std::optional<std::string> between_words(const CLI::App& command, const CLI::Option& option) {
  if (option.check_name("--prompt")) return " ";
  const ValueKind* const kind = value_kind(command, option);
  if (kind && kind->word == "STACK") return " | ";
  if (kind && kind->word == "BYTES") return "";
  return std::nullopt;
}

// --resmue, and not a negative number, a rule of three dashes or a sentence.
bool looks_like_flag(std::string_view word) {
  if (word.size() < 3 || !word.starts_with("--") || word[2] < 'a' || word[2] > 'z') return false;
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// What stands behind a command's name.
struct CommandWords {
  std::set<std::string> given;                                  // flags
  std::map<std::string, std::vector<std::string>> values = {};  // of flags, as often as they stand
  std::vector<std::string> stray;                               // words that nothing takes
  std::string unquoted;  // a flag and its value, of which more words are parts
};

CommandWords words_behind(const CLI::App& command, int argc, const char* const* argv, int first) {
  CommandWords words;
  size_t places = 0;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) places += option->get_items_expected_max();
  }
  const CLI::Option* behind = nullptr;  // the flag whose value the next word follows
  std::string flag, value;
  for (int i = first; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;
    const size_t equals = word.find('=');
    if (const CLI::Option* known = flag_named(command, word.substr(0, equals))) {
      behind = takes_a_word(*known) ? known : nullptr;
      flag = known->get_lnames().empty() ? word : "--" + known->get_lnames()[0];
      words.given.insert(flag);
      if (equals != word.npos) value = word.substr(equals + 1);
      if (behind && equals != word.npos) words.values[flag].push_back(value);
      if (!behind || equals != word.npos || i + 1 == argc) continue;
      value = argv[++i];
      words.values[flag].push_back(value);
      const bool several = known->get_items_expected_max() > 1 && known->get_allow_extra_args();
      while (several && i + 1 < argc && argv[i + 1][0] != '-') ++i;
    } else if (word.starts_with('-')) {
      behind = nullptr;
    } else if (places > 0) {
      --places;
    } else {
      words.stray.push_back(word);
      const auto between = behind ? between_words(command, *behind) : std::nullopt;
      if (!between) continue;
      value += *between + word;
      words.unquoted = flag + " " + (between->empty() ? value : '"' + value + '"');
    }
  }
  return words;
}

// The flag that most probably was meant to take a word; "" if none was.
std::string flag_for(const CLI::App& command, const std::set<std::string>& given,
                     const std::string& word) {
  const auto open = [&](const char* flag) {
    return flag_named(command, flag) && given.count(flag) == 0;
  };
  const std::filesystem::path path = word;
  const bool is_run = is_visible(path / "run.json");
  if (given.count("--resume") > 0 && open("--out")) return "--resume --out";
  if (is_run && open("--resume")) return open("--data") ? "--resume --out" : "--init";
  const std::vector<std::string> presets = known_presets();
  const bool is_model = is_run || is_visible(path / "config.json") || word.ends_with(".scheme") ||
                        std::find(presets.begin(), presets.end(), word) != presets.end();
  if (is_model && open("--model")) return "--model";
  for (const bool required : {true, false}) {
    for (const char* flag : {"--data", "--model", "--run", "--out", "--prompt"}) {
      if (open(flag) && (flag_named(command, flag)->get_required() || !required)) return flag;
    }
  }
  return "";
}

// "; did you mean '--model char --data book.txt'?" of words that nothing takes.
std::string meant_by(const CLI::App& command, const CommandWords& words) {
  if (!words.unquoted.empty()) return "; did you mean '" + words.unquoted + "'?";
  std::set<std::string> given = words.given;
  std::vector<std::string> meant;
  std::string prompt;  // has all the words that nothing else takes
  for (const std::string& word : words.stray) {
    const std::string flag = prompt.empty() ? flag_for(command, given, word) : "--prompt";
    if (flag.empty()) return "";
    given.insert(flag);
    if (flag == "--prompt") {
      prompt += (prompt.empty() ? "" : " ") + word;
    } else {
      meant.push_back(flag + " " + word);
    }
  }
  const bool plain = prompt.find(' ') == prompt.npos;
  if (!prompt.empty()) meant.push_back("--prompt " + (plain ? prompt : '"' + prompt + '"'));
  return meant.empty() ? "" : "; did you mean '" + join(meant, " ") + "'?";
}

// "--run and --out are required".
std::string required_flags(const CLI::App& command, const CommandWords& words) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->get_lnames().empty()) continue;
    const std::string flag = "--" + option->get_lnames()[0];
    if (words.given.count(flag) == 0) missing.push_back(flag);
  }
  if (missing.empty()) return "";
  return join(missing, " and ") + (missing.size() == 1 ? " is required" : " are required");
}

// What the parser says of values and of words that nothing takes; the command's own words begin at
// `first`.
std::string in_our_words(const CLI::App& command, const CLI::ParseError& error, int argc,
                         const char* const* argv, int first) {
  const std::string said = error.what();
  const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const std::string flag = said.substr(0, said.find(':'));
  const CommandWords words = words_behind(command, argc, argv, first);
  if (kind == CLI::ExitCodes::ArgumentMismatch && flag_named(command, flag)) {
    const auto values = words.values.find(flag);
    if (values == words.values.end() || values->second.size() < 2) return flag + " wants a value";
    const ValueKind* const is = value_kind(command, *flag_named(command, flag));
    const bool stack = is && is->word == "STACK";
    return flag + " is given " +
           (values->second.size() == 2 ? "twice" : join_parts(values->second.size(), " times")) +
           (stack ? "; did you mean " + with_stack(join(values->second, " | ")) + "?" : "");
  }
  const std::string converts = "Could not convert: ";
  const size_t equals = said.find(" = ");
  if (kind == CLI::ExitCodes::ConversionError && said.starts_with(converts) &&
      equals != said.npos) {
    const std::string of = said.substr(converts.size(), equals - converts.size());
    const CLI::Option* option = flag_named(command, of);
    if (!option && command.get_parent()) option = flag_named(*command.get_parent(), of);
    const std::string type = option ? option->get_type_name() : "";
    const char* const wanted = type == "INT" || type == "UINT"        ? "a whole number"
                               : type == "FLOAT" || type == "SECONDS" ? "a number"
                                                                      : "another value";
    return of + ": wanted " + wanted + ", found '" + said.substr(equals + 3) + "'";
  }
  const std::string required = required_flags(command, words);
  if (kind == CLI::ExitCodes::RequiredError && !required.empty()) {
    return required + meant_by(command, words);
  }
  if (kind != CLI::ExitCodes::ExtrasError) return said;
  const std::string word =
      words.stray.empty() ? said.substr(said.find(": ") + 2) : words.stray.front();
  return "nothing takes '" + word + "'" + meant_by(command, words);
}

}  // namespace

std::string explained(const CLI::App& app, const CLI::ParseError& error, int argc,
                      const char* const* argv) {
  const CLI::App* command = &app;
  int i = 1;
  for (; i < argc; ++i) {
    // What is said of the whole program comes first: --tell-every 5 train.
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    const CLI::Option* const known = command == &app ? flag_named(app, flag) : nullptr;
    if (known) {
      if (takes_a_word(*known) && flag == word) ++i;
      continue;
    }
    const CLI::App* const sub = command_named(*command, argv[i]);
    if (!sub) break;
    command = sub;
  }
  const int first = i;
  const std::string see = "; see " + full_name(*command) + " --help";
  const std::vector<std::string> commands = names_of_commands(*command);
  if (!commands.empty() && (i >= argc || argv[i][0] != '-')) {
    const std::string wanted = " (" + join(commands, ", ") + ")";
    if (i >= argc) return full_name(*command) + ": wanted a command" + wanted + see;
    const std::string called = called_elsewhere(*command, argv[i]);
    std::string near =
        called.empty() ? did_you_mean(argv[i], commands) : "; did you mean '" + called + "'?";
    const std::string flag = "--" + std::string(argv[i]);
    if (near.empty() && flag_named(*command, flag)) near = "; did you mean '" + flag + "'?";
    return full_name(*command) + ": there is no command '" + argv[i] + "'" +
           (near.empty() ? wanted : near);
  }
  for (; i < argc; ++i) {
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    if (word == "--") break;  // what follows is another command's
    if (const CLI::Option* known = flag_named(*command, flag)) {
      // What follows is its value, whatever it looks like: --stack -fuse.
      if (takes_a_word(*known) && flag == word) ++i;
      continue;
    }
    if (word.size() < 2 || word[0] != '-') continue;
    const bool has_value = i + 1 < argc && argv[i + 1][0] != '-';
    const std::string value = flag != word ? word.substr(flag.size() + 1)
                              : has_value  ? argv[i + 1]
                                           : "";
    std::string near = said_otherwise(*command, flag, value);
    if (near.empty()) near = said_by_set(*command, flag, value, true);
    if (near.empty()) near = nearest_flag(*command, flag, value);
    if (near.empty()) near = said_by_set(*command, flag, value, false);
    return full_name(*command) + ": there is no flag '" + flag + "'" + (near.empty() ? see : near);
  }
  const std::string why = in_our_words(*command, error, argc, argv, first);
  return full_name(*command) + ": " + why + (why.ends_with('?') ? "" : see);
}

std::string missing_value(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;  // what follows is another command's, or no flag
    if (const CLI::App* const sub = command_named(*command, word)) {
      command = sub;
      continue;
    }
    const CLI::Option* const known = flag_named(*command, word);
    if (!known || !takes_a_word(*known) || i + 1 == argc) continue;
    const std::string value = argv[++i], flag = value.substr(0, value.find('='));
    const bool is_flag = flag_named(*command, flag) != nullptr;
    if (!is_flag && !looks_like_flag(flag)) continue;
    const std::string name = full_name(*command) + ": " + word + " wants a value, found ";
    if (is_flag) return name + "the flag " + flag + "; see " + full_name(*command) + " --help";
    const std::string named = known->get_lnames().empty() ? "" : "--" + known->get_lnames()[0];
    return name + "'" + value + "'" +
           (named.empty() ? "; see " + full_name(*command) + " --help"
                          : "; a value that begins with -- is said as " + named + "=" + value);
  }
  return "";
}

}  // namespace adjoint
