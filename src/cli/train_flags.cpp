#include "cli/train_flags.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/text.h"
#include "train/config.h"
#include "train/settings_text.h"

namespace adjoint {

std::string shell_quoted(const std::string& word) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+=", c); };
  if (std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

nlohmann::json TrainFlags::layer() const {
  nlohmann::json layer = nlohmann::json::object();
  for (const OptionSpec& option : train_options()) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    const std::vector<std::string>& texts = found->second;
    layer[option.name] = texts.size() > 1 ? nlohmann::json(texts) : option.parse(texts[0]);
  }
  for (const std::string& setting : set) layer["set"].update(parse_setting(setting));
  return layer;
}

nlohmann::json TrainFlags::file_layer() const {
  return config.empty() ? nlohmann::json() : read_toml(config);
}

void TrainFlags::add_to(CLI::App& command, const std::shared_ptr<TrainFlags>& flags) {
  command.add_option("--config", flags->config,
                     "a TOML file with these options as keys (stop_after = 10) and [set]; "
                     "flags override it");
  for (const OptionSpec& option : train_options()) {
    std::string help = option.help;
    if (!option.choices.empty()) help += " {" + join(option.choices, "|") + "}";
    const std::string key = option.name;
    if (option.kind == OptionSpec::Kind::kSwitch) {
      command
          .add_flag_callback(
              option.flag(), [flags, key] { flags->given[key] = {"true"}; }, help)
          ->group(option.section);
      continue;
    }
    const std::string otherwise = option.otherwise.is_string() ? option.otherwise.get<std::string>()
                                                               : option.otherwise.dump();
    CLI::Option* added = nullptr;
    if (option.kind == OptionSpec::Kind::kTexts) {
      const auto take = [flags, key](const std::vector<std::string>& texts) {
        flags->given[key] = texts;
      };
      added = command.add_option_function<std::vector<std::string>>(option.flag(), take, help);
      added->allow_extra_args(false)->take_all();
    } else {
      const auto take = [flags, key](const std::string& text) { flags->given[key] = {text}; };
      added = command.add_option_function<std::string>(option.flag(), take, help);
    }
    const bool number =
        option.kind == OptionSpec::Kind::kInteger || option.kind == OptionSpec::Kind::kNumber;
    if (number) {
      // What is no number cannot be read; what is out of range is refused with the rest.
      const auto readable = [option](const std::string& text) -> std::string {
        const nlohmann::json value = option.parse(text);
        const bool whole = option.kind == OptionSpec::Kind::kInteger;
        if (whole ? value.is_number_integer() : value.is_number()) return "";
        return std::string("wanted ") + (whole ? "a whole number" : "a number") + ", found '" +
               text + "'";
      };
      added->check(CLI::Validator(readable, ""));
    }
    added->default_str(otherwise)->type_name(number ? "NUMBER" : "TEXT")->group(option.section);
  }
  command.add_option("--set", flags->set,
                     "settings of the model by name, such as layers=2 dropout=0.1");
  command.add_flag("--json", flags->json, "the result as JSON");
}

}  // namespace adjoint
