// Settings as people write them, as the JSON that options are read from.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace adjoint {

// A TOML file with the options as keys and a table [set] for the model's settings.
nlohmann::json read_toml(const std::filesystem::path& file);

// "layers=2" -> {"layers": 2}.
nlohmann::json parse_setting(std::string_view text);

}  // namespace adjoint
