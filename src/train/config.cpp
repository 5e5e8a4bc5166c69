#include "train/config.h"

#include <filesystem>

#include "base/error.h"

namespace adjoint {

using nlohmann::json;

TrainConfig::TrainConfig(json given) : OptionFields(std::move(given)) {
  if (values().contains("set")) settings = values()["set"];
  if (!out.empty()) return;
  out = "runs/" + std::filesystem::path(model).stem().string();
  settle("out", out);
}

void TrainConfig::set_steps(int64_t count) {
  steps = count;
  settle("steps", count);
}

std::span<const OptionSpec> train_options() {
  static const TrainConfig plain(json::object());
  return plain.options();
}

TrainConfig make_config(std::span<const json> layers) {
  json given = json::object();
  json settings = json::object();
  for (const json& layer : layers) {
    if (layer.is_null()) continue;
    for (const auto& [key, value] : layer.items()) {
      if (key == "set") {
        if (!value.is_object())
          fail("option 'set': wanted names with numbers, found ", value.dump());
        settings.update(value);
        continue;
      }
      option_named(train_options(), key).check(value);
      given[key] = value;
    }
  }
  for (const char* flag : {"batch", "seq"}) {
    if (settings.contains(flag)) {
      fail("setting '", flag, "' is the run's: say --", flag[0] == 'b' ? "batch" : "context");
    }
  }
  for (const auto& [key, value] : settings.items()) {
    if (value.is_number()) continue;
    fail("setting '", key, "': wanted a number, found ",
         value.is_string() ? value.get<std::string>() : value.dump());
  }
  given["set"] = settings;
  TrainConfig c(std::move(given));
  if (c.min_lr > c.lr) fail("option 'min_lr': wanted at most lr=", c.lr, ", found ", c.min_lr);
  return c;
}

}  // namespace adjoint
