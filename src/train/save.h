// What a save holds: the parameters and the optimizer's state, checked before they are written and
// before they are believed. How they get to disk, and which files are the save, is train/store.h's.
// A parameter is saved as it is held: float32, codes with their scales, or, when it is frozen and
// the stack says so, bf16 or f16 (safetensors' BF16 and F16). It is read as the reading run holds
// it: wider is exact, and narrower only where that run's stack asks for it.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "run/run.h"
#include "train/store.h"

namespace adjoint {

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
// With the optimizer the caller holds the folder's lock: a run that goes on.
int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer, const std::string& model);

// The parameters of a save, mapped into memory.
class SavedModel {
 public:
  explicit SavedModel(const SavePaths& paths);
  ~SavedModel();
  int64_t step() const { return save_.step; }
  const SafetensorsFile& file() const { return *save_.model; }
  // Refuses the save unless its tensors are this scheme's parameters, one to one, and whole.
  void check_fits(const Scheme& scheme) const;
  // Refuses it unless it is of the model that `model` identifies (see fingerprint).
  void check_model(const std::string& model) const;
  std::vector<float> floats(const std::string& name) const;  // wider than they are held or as held

 private:
  std::filesystem::path path_;
  OpenSave save_;
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
