// A run's settings: one table says each option's name, type, default, range and help; the command
// line, TOML files and the saved run.json all read it.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "functors/functor.h"
#include "models/library.h"
#include "train/fit_budget.h"

namespace adjoint {

struct OptionSpec {
  enum class Kind : uint8_t { kText, kInteger, kNumber, kSwitch };
  std::string_view name;  // as in a TOML file: "stop_after"; the flag is --stop-after
  Kind kind;
  nlohmann::json otherwise;
  std::string_view help;
  double least = -1e300, most = 1e300;    // numbers
  std::vector<std::string> choices = {};  // texts; empty: any
  // What a run that trains wants at least. A saved run that said less is read all the same: to
  // sample from it, or to go on with another value.
  double least_to_train = -1e300;
};
std::span<const OptionSpec> train_options();

struct TrainConfig {
  std::string model, data, tokenizer, out, device, workspace, init;
  int64_t steps, stop_after, batch, context, seed, threads;
  double lr, min_lr, cooldown;
  std::string schedule, lr_scaling;
  int64_t warmup, base_batch;
  StepOptions step;
  FitWish wish;
  int64_t eval_every, eval_batches, save_every, log_every;
  double val_fraction;
  int64_t max_vocab;
  bool deterministic, resume, overwrite;
  nlohmann::json settings;  // of the model: {"layers": 2}
  nlohmann::json all;       // what the above was read from, for run.json
};

// Later objects override earlier ones; what none says is the default. Errors name the option.
TrainConfig make_config(std::span<const nlohmann::json> layers);

// The settings of a command: defaults, then with --resume those of the run's folder (with --init
// those that make the model and its tokenizer), then a TOML file's, then the flags'. Also names the
// model's text: the folder's own unless another is asked for.
struct ResolvedConfig {
  TrainConfig config;
  ModelText text;
  std::string data_print = {};  // of the text that a resumed run began with
  bool data_given = false;      // it was said again, so it may be another
};
ResolvedConfig resolve_config(const nlohmann::json& toml, const nlohmann::json& flags);

// What a run's folder says of itself.
ResolvedConfig saved_config(const std::filesystem::path& folder);
nlohmann::json to_json(const TrainConfig& config, const ModelText& text);

// A TOML file with the options as keys and a table [set] for the model's settings.
nlohmann::json read_toml(const std::filesystem::path& file);

// "layers=2" -> {"layers": 2}.
nlohmann::json parse_setting(std::string_view text);

}  // namespace adjoint
