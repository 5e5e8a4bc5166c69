// The flags of `adjoint train`, for the command itself and for whoever starts it.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace adjoint {

struct TrainFlags {
  std::string config;
  std::map<std::string, std::vector<std::string>> given;  // by option name
  std::vector<std::string> set;
  bool json = false;

  static void add_to(CLI::App& command, const std::shared_ptr<TrainFlags>& flags);
  // What they say, and what the file of --config says, as settings (train/resolve_config.h).
  nlohmann::json layer() const;
  nlohmann::json file_layer() const;
};

// A word as a shell reads it.
std::string shell_quoted(const std::string& word);

}  // namespace adjoint
