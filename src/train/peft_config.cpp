#include "train/peft_config.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace adjoint {

namespace {

// A field that is absent, null, empty or this says nothing else.
void check_plain(const nlohmann::json& config, const std::string& file, const char* field,
                 const nlohmann::json& plain) {
  const auto found = config.find(field);
  if (found == config.end() || found->is_null() || *found == plain) return;
  if ((found->is_array() || found->is_object()) && found->empty()) return;
  fail(file, ": ", field, " must be ", plain.dump(), " or absent, found ", found->dump());
}

}  // namespace

PeftConfig read_peft_config(const std::filesystem::path& path) {
  const std::string file = path.string();
  const nlohmann::json config = read_json(path);
  const nlohmann::json kind = config.value("peft_type", nlohmann::json());
  if (kind != "LORA") fail(file, ": peft_type must be \"LORA\", found ", kind.dump());
  check_plain(config, file, "use_dora", false);
  check_plain(config, file, "bias", "none");
  check_plain(config, file, "lora_bias", false);
  check_plain(config, file, "modules_to_save", nullptr);
  check_plain(config, file, "rank_pattern", nlohmann::json::object());
  check_plain(config, file, "alpha_pattern", nlohmann::json::object());
  const nlohmann::json alpha = config.value("lora_alpha", nlohmann::json());
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>())) {
    fail(file, ": wanted the number lora_alpha, found ", alpha.dump());
  }
  const nlohmann::json by_root = config.value("use_rslora", nlohmann::json());
  if (!by_root.is_boolean() && !by_root.is_null()) {
    fail(file, ": use_rslora must be true or false, found ", by_root.dump());
  }
  return {.alpha = alpha.get<double>(), .by_root = by_root == true};
}

}  // namespace adjoint
