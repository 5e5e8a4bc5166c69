// A run's folder. Everything in it is written atomically; the parameters and the optimizer's state
// belong together, so both new files are complete on disk before either takes its place, and a
// crash between the two moves is finished by the next load.
//   model.safetensors      parameters by source path; metadata: step
//   optimizer.safetensors  the optimizer's state; metadata: step
//   run.json               the settings;  model.scheme  the model's text;  tokenizer.json
//   metrics.jsonl          one line per logged step
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "run/run.h"

namespace adjoint {

struct SavePaths {
  explicit SavePaths(std::filesystem::path folder) : folder(std::move(folder)) {}
  std::filesystem::path folder;
  std::filesystem::path model() const { return folder / "model.safetensors"; }
  std::filesystem::path optimizer() const { return folder / "optimizer.safetensors"; }
  std::filesystem::path run() const { return folder / "run.json"; }
  std::filesystem::path text() const { return folder / "model.scheme"; }
  std::filesystem::path tokenizer() const { return folder / "tokenizer.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
};

// Makes the folder and tries to write in it; Error.
void check_writable(const SavePaths& paths);

// The step of the save in the folder, or nothing when there is none. A damaged one is an Error.
std::optional<int64_t> saved_step(const SavePaths& paths);

void save_state(const SavePaths& paths, const Run& run, int64_t step);

// Fills the run's parameters and, if asked, the optimizer's state; returns the step. A save of
// another model is refused with the first difference. Nothing is changed unless all of it fits.
int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer);

nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace adjoint
