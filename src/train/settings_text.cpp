#include "train/settings_text.h"

#include <toml++/toml.h>

#include <algorithm>
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

// "; did you mean 'model = "char"'?" of a line whose value is a word.
std::string with_quotes(const std::string& text, int64_t number) {
  std::istringstream lines(text);
  std::string line;
  for (int64_t i = 0; i < number && std::getline(lines, line);) ++i;
  const std::string name = trimmed(line.substr(0, line.find('=')));
  if (name.size() + 1 >= line.size() || line.find('=') == line.npos) return "";
  const std::string value = trimmed(line.substr(line.find('=') + 1));
  if (value.empty() || value.find_first_of("\"'#{}[]") != value.npos) return "";
  return "; a text is written in quotes: did you mean '" + name + " = \"" + value + "\"'?";
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
         no_value ? with_quotes(text, e.source().begin.line) : "");
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

}  // namespace adjoint
