#include "train/resolve_config.h"

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "base/near_path.h"
#include "functors/optimizer_text.h"
#include "train/preset_weights.h"
#include "train/provenance.h"
#include "train/save.h"
#include "train/stack_texts.h"
#include "train/store.h"

namespace adjoint {

using nlohmann::json;

namespace {

json saved_layer(const SavePaths& paths) {
  const json saved = read_json(paths.run());
  if (!saved.contains("options") || !saved["options"].is_object()) {
    fail(paths.run().string(), ": wanted the settings of a run under \"options\"");
  }
  json options = saved["options"];
  // The run keeps a copy of each functor and schedule that its stack took from a file.
  if (options.contains("stack") && options["stack"].is_string()) {
    options["stack"] = stack_in(paths, options["stack"].get<std::string>());
  }
  // So it does with an optimizer of the user's own.
  if (options.contains("optimizer") && options["optimizer"].is_string()) {
    options["optimizer"] = with_optimizer_file(
        options["optimizer"].get<std::string>(),
        [&](const std::string& file) { return (paths.folder / file).string(); });
  }
  return options;
}

int64_t saved_print_length(const SavePaths& paths) {
  const json saved = read_json(paths.run());
  if (!saved.contains("printed_with")) return 0;
  if (!saved["printed_with"].is_number_unsigned() || saved["printed_with"] > 1e7) {
    fail(paths.run().string(), ": wanted tokens per sample under \"printed_with\", found ",
         saved["printed_with"].dump());
  }
  return saved["printed_with"].get<int64_t>();
}

ModelText saved_text(const SavePaths& paths) {
  const json saved = read_json(paths.run());
  if (!saved.contains("preset") || !saved["preset"].is_string()) {
    fail(paths.run().string(), ": wanted the model's preset under \"preset\"");
  }
  return {.file = paths.text().string(),
          .text = read_file(paths.text()),
          .preset = saved["preset"].get<std::string>()};
}

// A run that starts from another's parameters is of its model and reads its tokens, unless it is
// told otherwise; then shapes and tokenizers are compared.
ResolvedConfig config_from_base(const std::string& folder, const json& toml, const json& flags) {
  const SavePaths base(folder);
  if (!is_visible(base.run())) {
    check_no_preset(folder);
    fail(folder, ": there is no run here to start from (no run.json)", did_you_mean_folder(folder));
  }
  const json saved = saved_layer(base);
  json like = json::object();
  if (saved.contains("set")) like["set"] = saved["set"];
  for (const OptionSpec& option : train_options()) {
    if (!option.traits.makes_model || !saved.contains(option.name)) continue;
    like[option.name] = saved[option.name];
  }
  const json layers[] = {like, toml, flags};
  const TrainConfig config = make_config(layers);
  const bool same = config.model == saved.value("model", "");
  return {.config = config, .text = same ? saved_text(base) : find_model(config.model)};
}

ResolvedConfig resolve(const json& toml, const json& flags) {
  if (flags.contains("steps") && flags.contains("epochs")) {
    fail("--steps and --epochs contradict each other: each says how long the run is");
  }
  const json asked[] = {toml, flags};
  TrainConfig config = make_config(asked);
  if (!config.repeat.empty()) {
    for (const char* other : {"resume", "init", "adapter"}) {
      if (!flags.contains(other)) continue;
      fail("--repeat and --", other,
           " contradict each other: a run that is repeated begins as it did");
    }
    return resolve_repeated(config.repeat, toml, flags);
  }
  if (!config.resume && !config.init.empty()) return config_from_base(config.init, toml, flags);
  if (!config.resume) return {.config = config, .text = find_model(config.model)};
  if (flags.contains("init")) {
    fail("--resume and --init contradict each other: a run that goes on has its parameters");
  }
  if (config.overwrite) fail("--resume and --overwrite contradict each other");
  const SavePaths paths(config.out);
  if (!is_visible(paths.run())) {
    fail(config.out, ": there is no run here to resume (no run.json)",
         did_you_mean_folder(config.out));
  }
  const json saved = saved_layer(paths);
  const json about = read_json(paths.run());
  json before = saved;
  // Another budget is another choice, beside what was asked for and not beside the last choice.
  const bool fits = flags.contains("fit") || toml.contains("fit");
  if (fits && about.contains("asked_stack") && about["asked_stack"].is_string()) {
    before["stack"] = stack_in(paths, about["asked_stack"].get<std::string>());
  }
  if (flags.contains("steps") || toml.contains("steps")) before["epochs"] = 0;  // no longer
  // The cap on workspaces was the other device's.
  const json& said = flags.contains("device") ? flags : toml;
  if (said.contains("device") && said["device"] != saved.value("device", "cpu")) {
    before["workspace"] = "";
  }
  // Cores that ranks shared are shared anew where there are more or fewer of them.
  const json& told = flags.contains("ranks") ? flags : toml;
  if (told.contains("ranks") && told["ranks"] != saved.value("ranks", 1) &&
      about.value("threads_shared", false)) {
    before["threads"] = 0;
  }
  const json layers[] = {before, toml, flags};
  config = make_config(layers);
  config.out = paths.folder.string();  // the folder may have been moved
  const bool same = config.model == saved.value("model", "");
  return {.config = config,
          .text = same ? saved_text(paths) : find_model(config.model),
          .data_print = about.value("data", ""),
          .data_given = flags.contains("data") || toml.contains("data"),
          .before = about.contains("before") ? about["before"] : saved,
          .unsettled = about.contains("before"),
          .threads_shared = about.value("threads_shared", false),
          .printed_with = saved_print_length(paths)};
}

}  // namespace

ResolvedConfig resolve_config(const json& toml, const json& flags) {
  ResolvedConfig resolved = resolve(toml, flags);
  // Some numbers of the right kind would still ruin the parameters.
  const TrainConfig& config = resolved.config;
  for (const OptionSpec& option : config.options()) {
    option.check_trains(config.values()[option.name]);
    if (toml.contains(option.name) || flags.contains(option.name)) {
      resolved.said.insert(option.name);
    }
  }
  if (resolved.said.contains("threads")) resolved.threads_shared = false;
  return resolved;
}

ResolvedConfig saved_config(const std::filesystem::path& folder) {
  const SavePaths paths(folder);
  const json saved = saved_layer(paths);
  return {.config = make_config(std::span(&saved, 1)),
          .text = saved_text(paths),
          .data_print = read_json(paths.run()).value("data", ""),
          .before = saved,
          .printed_with = saved_print_length(paths)};
}

json to_json(const TrainConfig& config, const ModelText& text) {
  json options = config.values();
  for (const OptionSpec& option : config.options()) {
    if (option.traits.of_command) options[option.name] = option.otherwise;
  }
  return {{"options", options}, {"preset", text.preset}};
}

}  // namespace adjoint
