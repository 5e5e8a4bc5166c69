// The options that a command runs with, and run.json, in which a run keeps them.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "models/library.h"
#include "train/config.h"

namespace adjoint {

// The settings of a command: defaults, then with --resume those of the run's folder (with --init
// those that make the model and its tokenizer), then a TOML file's, then the flags'. Also names the
// model's text: the folder's own unless another is asked for.
struct ResolvedConfig {
  TrainConfig config;
  ModelText text;
  std::string data_print = {};  // of the text that a resumed run began with
  bool data_given = false;      // it was said again, so it may be another
  // Of a run's folder: its options as they were, null otherwise; and the tokens per sample by which
  // its saves are known (fingerprint), which stay when a resumed run has others. 0: the options'.
  nlohmann::json before = nullptr;
  bool unsettled = false;  // who resumed it otherwise died before the save was as the options say
  bool threads_shared = true;  // nobody said how many threads: ranks share the cores
  int64_t printed_with = 0;
  std::set<std::string> said = {};  // options that the file or the flags say
};
ResolvedConfig resolve_config(const nlohmann::json& toml, const nlohmann::json& flags);

// What a run's folder says of itself.
ResolvedConfig saved_config(const std::filesystem::path& folder);
nlohmann::json to_json(const TrainConfig& config, const ModelText& text);

}  // namespace adjoint
