#include "train/provenance.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file_view.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/near_path.h"
#include "base/version.h"
#include "data/source.h"
#include "device/gpu.h"
#include "train/save.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Options that decide what is told and kept, and no number of a step.
const std::set<std::string>& telling_options() {
  static const std::set<std::string> names = {
      "out",        "cache",    "init",      "eval_every",  "eval_batches", "save_every", "keep",
      "keep_best",  "patience", "log_every", "norms",       "tensorboard",  "fit",        "profile",
      "stop_after", "resume",   "overwrite", "max_minutes", "repeat",       "fit_seconds"};
  return names;
}

// Of a file, or of everything in a folder but what a run writes beside its parameters.
std::string hash_of_path(const fs::path& path) {
  if (!fs::is_directory(path)) return hash_text(hash_of_file(path));
  const SavePaths run(path);
  const bool is_run = fs::exists(run.run());
  std::vector<fs::path> files;
  if (is_run && fs::exists(run.model())) files = {run.model()};
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (!is_run && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  uint64_t hash = files.size();
  for (const fs::path& file : files) {
    const uint64_t one = fs::file_size(file) > 0 ? hash_of_file(file) : 0;
    hash = hash_of(&one, sizeof one, hash_of(file.filename().string(), hash));
  }
  return hash_text(hash);
}

}  // namespace

json made_by(bool on_gpu) {
  json by = {{"adjoint", kVersion}, {"compiler", __VERSION__}};
  // By this name also a program whose file was replaced since it started is found.
  std::error_code ignored;
  if (fs::exists(kThisProgram, ignored)) by["program"] = hash_text(hash_of_file(kThisProgram));
  const dnnl_version_t* const version = dnnl_version();
  by["onednn"] = fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  if (on_gpu) by["gpu"] = open_gpu().name;
  return by;
}

json made_of(const TrainConfig& config, const ModelText& text) {
  json of = json::object();
  const auto add = [&](const char* what, const std::string& path) {
    if (path.empty() || !is_visible(path)) return;
    const fs::path whole = fs::absolute(path);
    of[what] = {{"path", whole.string()}, {"hash", hash_of_path(whole)}};
  };
  add("weights", text.weights);
  add("init", config.init);
  add("adapter", config.adapter);
  add("template", config.chat_template);  // one of ours is no file
  return of;
}

void check_made_of(const SavePaths& was, const json& now) {
  const json about = read_json(was.run());
  if (!about.contains("made_of") || !about["made_of"].is_object()) return;
  for (const auto& [what, then] : about["made_of"].items()) {
    const std::string path = then.is_object() ? then.value("path", "") : "";
    if (!now.contains(what)) {
      fail(was.folder.string(), ": the run began with the ", what, " of ", path,
           ", which is no longer there");
    }
    if (now[what]["hash"] == then.value("hash", "")) continue;
    fail(now[what]["path"].get<std::string>(), ": this has changed since the run in ",
         was.folder.string(), " began with it");
  }
}

json history_with(const json& about, const json& options, int64_t step) {
  json history = about.contains("history") ? about["history"] : json::array();
  json changed = json::object();
  for (const auto& [name, now] : options.items()) {
    if (telling_options().count(name)) continue;
    const json was = about["options"].contains(name) ? about["options"][name] : json();
    if (was != now && !was.is_null()) changed[name] = {{"was", was}, {"is", now}};
  }
  if (!changed.empty()) history.push_back({{"step", step}, {"changed", changed}});
  return history;
}

ResolvedConfig resolve_repeated(const std::string& folder, const json& toml, const json& flags) {
  const SavePaths base(folder);
  if (!is_visible(base.run())) {
    fail(folder, ": there is no run here to repeat (no run.json)", did_you_mean_folder(folder));
  }
  const json about = read_json(base.run());
  for (const auto& [how, made] : about.items()) {  // train/derived_run.h
    if (!made.is_object() || !made.contains("from")) continue;
    fail(folder, ": this run was ", how, " from ", made.value("from", ""),
         ", not trained; repeat that one");
  }
  if (about.contains("history") && about["history"].is_array() && !about["history"].empty()) {
    const json& first = about["history"][0];
    const json changed = first.value("changed", json::object());
    fail(folder, ": from step ", first.value("step", int64_t{0}),
         " on this run went on otherwise (", changed.empty() ? "" : changed.begin().key(),
         "), so that its options do not say how to repeat it");
  }
  ResolvedConfig resolved = saved_config(base.folder);
  json saved = resolved.before;
  saved.erase("out");
  const json of = about.value("made_of", json::object());
  if (of.contains("adapter")) saved["adapter"] = of["adapter"].value("path", "");
  const json layers[] = {saved, toml, flags};
  resolved.config = make_config(layers);
  if (of.contains("weights")) {
    // The folder's config.json tells the architecture; the text is the one that was kept.
    const ModelText now = find_model(resolved.config.model);
    resolved.text.weights = now.weights;
    resolved.text.architecture = now.architecture;
  }
  resolved.data_print = about.value("data", "");
  resolved.data_given = flags.contains("data") || toml.contains("data");
  resolved.threads_shared = about.value("threads_shared", false);
  resolved.before = nullptr;
  resolved.printed_with = 0;
  return resolved;
}

}  // namespace adjoint
