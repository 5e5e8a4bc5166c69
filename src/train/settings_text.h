// Settings as people write them, as the JSON that options are read from.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/library.h"

namespace adjoint {

// A TOML file with the options as keys and a table [set] for the model's settings.
nlohmann::json read_toml(const std::filesystem::path& file);

// Refuses a setting of its [set] that the model does not have, with the line.
void check_settings(const std::filesystem::path& file, const ModelText& text);

// "layers=2" -> {"layers": 2}.
nlohmann::json parse_setting(std::string_view text);

// The library's numbers, which --set says, by every name that one of its models or of the formats
// of others has for them: layers, n_layer and num_hidden_layers are layers.
std::map<std::string, std::string> names_of_settings();

}  // namespace adjoint
