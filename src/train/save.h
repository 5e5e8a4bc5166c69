// A run's folder. Everything in it is written atomically; the parameters and the optimizer's state
// belong together, so both new files are complete on disk before either takes its place, and a
// crash between the two moves is finished by the next load.
//   model.safetensors      parameters by source path; metadata: step
//   optimizer.safetensors  the optimizer's state; metadata: step
//   run.json               the settings;  model.scheme  the model's text;  tokenizer.json
//   metrics.jsonl          one line per logged step
//   functors/*.functor     the stack's own functors that came from files
//   products.json          on a GPU: the algorithms that its matrix products were given
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
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
  std::filesystem::path functors() const { return folder / "functors"; }
  std::filesystem::path products() const { return folder / "products.json"; }
};

// Makes the folder and tries to write in it; Error.
void check_writable(const SavePaths& paths);

// While it lives, no other run writes to the folder; an Error when one does already.
class FolderLock {
 public:
  explicit FolderLock(const SavePaths& paths);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

// What the folder holds of a run: "at step 7", or the first file of it; empty when nothing.
std::string holds_run(const SavePaths& paths);
// Removes every file of a run.
void remove_run(const SavePaths& paths);

// The step of the save in the folder, or nothing when there is none. A damaged one is an Error.
std::optional<int64_t> saved_step(const SavePaths& paths);

// `model` identifies the scheme that the state belongs to (see fingerprint). State that is not
// finite is an Error, and nothing is written.
void save_state(const SavePaths& paths, const Run& run, int64_t step, const std::string& model);

// A copy of what a save holds, made between two steps and written while the next ones run.
class StateCopy {
 public:
  explicit StateCopy(const Run& run);  // takes no memory yet
  Bytes size() const { return size_; }
  bool held() const { return bytes_ != nullptr; }  // once taken, its memory stays
  // As the run stands now. State that is not finite is an Error.
  void take();
  // What save_state would have written when the copy was taken; on any thread.
  void save(const SavePaths& paths, int64_t step, const std::string& model) const;

 private:
  const Run& run_;
  std::vector<SafetensorView> parameters_, states_;  // of the copy
  Bytes size_;
  std::unique_ptr<std::byte[]> bytes_;
};

// Fills the run's parameters and, if asked, the optimizer's state; returns the step. A damaged save
// (its checksum tells) and a save of another model are refused. Nothing is changed unless all fits.
int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer, const std::string& model);

// The parameters of a save, mapped into memory.
class SavedModel {
 public:
  explicit SavedModel(const SavePaths& paths);
  ~SavedModel();
  int64_t step() const { return step_; }
  const SafetensorsFile& file() const { return *file_; }
  // Refuses the save unless its tensors are this scheme's parameters, one to one, and whole.
  void check_fits(const Scheme& scheme) const;
  // Refuses it unless it is of the model that `model` identifies (see fingerprint).
  void check_model(const std::string& model) const;
  std::vector<float> floats(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<SafetensorsFile> file_;
  int64_t step_ = 0;
};

// The parameters alone, without an optimizer's state: model.safetensors.
void save_model(const SavePaths& paths, std::span<const SafetensorView> parameters, int64_t step,
                const std::string& model);

// What a model computes with one sample, dropout aside, whatever its files are called.
std::string fingerprint(const Scheme& one_sample);

// The process's table of tuned products (ops/product_table.h). A run that goes on takes its
// folder's before its own machine's, so that it multiplies as it did, with the same bits; a folder
// without one changes nothing, and a damaged one is an Error.
void save_products(const SavePaths& paths);
void load_products(const SavePaths& paths);

nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace adjoint
