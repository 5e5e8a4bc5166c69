#include "train/settings_text.h"

#include <toml++/toml.h>

#include <charconv>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "train/config.h"
#include "train/option.h"

namespace adjoint {

using nlohmann::json;

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
        option_named(train_options(), name).check(values[name]);
      } catch (const Error& e) {
        fail(file.string(), ":", key.source().begin.line, ": ", e.what());
      }
    }
    return values;
  } catch (const toml::parse_error& e) {
    fail(file.string(), ":", e.source().begin.line, ":", e.source().begin.column, ": ",
         std::string(e.description()));
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
