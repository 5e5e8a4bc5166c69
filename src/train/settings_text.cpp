#include "train/settings_text.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/split.h"
#include "base/text.h"
#include "scheme/document.h"
#include "train/config.h"
#include "train/option.h"

namespace adjoint {

using nlohmann::json;

namespace {

// "; did you mean 'model = "char"'?" of a line whose value is a word. The parser takes one that
// begins as `nan` or `inf` does for a number.
std::string with_quotes(const std::string& text, int64_t number, bool is_no_value) {
  std::istringstream lines(text);
  std::string line;
  for (int64_t i = 0; i < number && std::getline(lines, line);) ++i;
  const std::string name = trimmed(line.substr(0, line.find('=')));
  if (name.size() + 1 >= line.size() || line.find('=') == line.npos) return "";
  const std::string value = trimmed(line.substr(line.find('=') + 1));
  if (value.empty() || value.find_first_of("\"'#{}[]") != value.npos) return "";
  if (!is_no_value && !std::isalpha(static_cast<unsigned char>(value[0]))) return "";
  return "; a text is written in quotes: did you mean '" + name + " = \"" + value + "\"'?";
}

// A number of the model stands under [set].
void check_is_option(const std::string& name) {
  const auto options = train_options();
  const bool known = std::any_of(options.begin(), options.end(),
                                 [&](const OptionSpec& option) { return option.name == name; });
  if (known || option_elsewhere(options, name)) return;
  const std::map<std::string, std::string> settings = names_of_settings();
  const auto setting = settings.find(name);
  if (setting == settings.end()) return;
  fail("there is no option '", name, "'; '", setting->second,
       "' is a number of the model: say it under [set]");
}

[[noreturn]] void fail_section(const std::string& name) {
  const std::string near = did_you_mean("[" + name + "]", {"[set]"});
  fail("there is no section [", name, "]",
       near.empty() ? ": options stand above all sections, and [set] has the model's numbers"
                    : near);
}

}  // namespace

json read_toml(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    const toml::table table = toml::parse(text, file.string());
    std::ostringstream as_json;
    as_json << toml::json_formatter{table};
    json values = json::parse(as_json.str());
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (name == "set") continue;
      try {
        if (value.is_table()) fail_section(name);
        check_is_option(name);
        option_named(train_options(), name).check(values[name]);
      } catch (const Error& e) {
        fail(file.string(), ":", key.source().begin.line, ": ", e.what());
      }
    }
    return values;
  } catch (const toml::parse_error& e) {
    const std::string why(e.description());
    const bool no_value = why.find("determine value type") != why.npos;
    fail(file.string(), ":", e.source().begin.line, ":", e.source().begin.column, ": ", why,
         with_quotes(text, e.source().begin.line, no_value));
  }
}

void check_settings(const std::filesystem::path& file, const ModelText& text) {
  const Document document = parse_document(text.text, text.file);
  std::vector<std::string> names;
  for (const auto* settings : {&document.axes, &document.numbers}) {
    for (const Setting& setting : *settings) names.push_back(setting.name);
  }
  const toml::table table = toml::parse(read_file(file), file.string());
  const toml::table* const set = table["set"].as_table();
  if (!set) return;
  for (const auto& [key, value] : *set) {
    const std::string name(key.str());
    if (name == "seq" || std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(file.string(), ":", key.source().begin.line, ": '", text.file, "' has no axis or number '",
         name, "'; there are ", join(names, ", "), did_you_mean(name, names));
  }
}

json parse_setting(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    fail("--set: wanted NAME=NUMBER, found '", text, "'");
  }
  const std::string name(text.substr(0, equals)), value(text.substr(equals + 1));
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number)) {
    fail("--set ", name, ": wanted a number, found '", value, "'");
  }
  return {{name, number}};
}

std::map<std::string, std::string> names_of_settings() {
  std::map<std::string, std::string> names;
  for (const std::string& preset : known_presets()) {
    const ModelText text = find_model(preset);
    const Document document = parse_document(text.text, text.file);
    for (const auto* settings : {&document.axes, &document.numbers}) {
      for (const Setting& setting : *settings) names[setting.name] = setting.name;
    }
  }
  const std::map<std::string, std::string> ours = names;
  for (const std::string& preset : known_presets()) {
    const ModelText text = find_model(preset);
    for (const Format& format : parse_document(text.text, text.file).formats) {
      for (const FormatField& field : format.fields) {
        if (field.value.kind != Term::Kind::kName || ours.count(field.value.word) == 0) continue;
        for (const std::string& path : field.paths) names.emplace(path, field.value.word);
      }
    }
  }
  return names;
}

}  // namespace adjoint
