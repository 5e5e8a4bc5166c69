// What a save holds: parameters and the optimizer's state, checked when they are written and when
// they are read. train/store.h handles the files. A parameter is saved in the type that the run
// holds it in: float32, codes with their scales, or, if it is frozen and the stack says so, bf16 or
// f16 (safetensors' BF16 and F16). It is converted to the type of the run that reads it: widening
// is exact, and narrowing happens only where that run's stack asks for it.
#pragma once
#include <map>
#include <memory>

#include "data/safetensors.h"
#include "run/run.h"
#include "train/store.h"

namespace adjoint {

// `model` identifies the scheme that the state belongs to (see fingerprint). State that is not
// finite is an Error, and nothing is written.
void save_state(const SavePaths& paths, const Run& run, int64_t step, const std::string& model);

// The same of tensors that lie in memory, whole.
void write_state(const SavePaths& paths, std::span<const SafetensorView> parameters,
                 std::span<const SafetensorView> states, int64_t step, const std::string& model);

// Loads the run's parameters and, if wanted, the optimizer's state; returns the step. A damaged
// save (by its checksum) and a save of another model are refused, and nothing is changed then. To
// load the optimizer, the caller must hold the folder's lock. Where `weights` names a state that
// follows parameters, `ema.average`, those that have it are what it says instead.
int64_t load_state(const SavePaths& paths, Run& run, bool with_optimizer, const std::string& model,
                   const std::string& weights = "");

// The folder's save with the optimizer's state, whole and of one step; a folder without that state
// is refused. The caller must hold the folder's lock.
OpenSave open_to_resume(const SavePaths& paths);

// The parameters of a save, mapped into memory.
class SavedModel {
 public:
  explicit SavedModel(const SavePaths& paths);
  ~SavedModel();
  int64_t step() const { return save_.step; }
  std::filesystem::path path() const { return paths_.model(); }
  const SafetensorsFile& file() const { return *save_.model; }
  // Refuses the save unless its tensors are exactly this scheme's parameters, and undamaged.
  void check_fits(const Scheme& scheme) const;
  // Refuses it unless it is of the model that `model` identifies (see fingerprint).
  void check_model(const std::string& model) const;
  // From now on parameters that have this state, `ema.average`, are what it says.
  void take_weights(const Scheme& scheme, const std::string& state);
  std::vector<float> floats(const std::string& name) const;  // widened to float32

 private:
  SavePaths paths_;
  OpenSave save_;
  OpenSave followed_ = {};                                // with the optimizer's state
  std::map<std::string, const SafetensorView*> instead_;  // by the name of a parameter
};

// The parameters alone, without an optimizer's state: model.safetensors.
void save_model(const SavePaths& paths, std::span<const SafetensorView> parameters, int64_t step,
                const std::string& model);

// The same of a run's parameters.
void save_parameters(const SavePaths& paths, const Run& run, int64_t step,
                     const std::string& model);

// Identifies what a model computes for one sample, without dropout and names of files.
std::string fingerprint(const Scheme& one_sample);

// The process's table of tuned products (product_table.h). A resumed run prefers its folder's table
// to its machine's, so that products keep their bits. A folder without a table changes nothing, and
// a damaged table is an Error.
void save_products(const SavePaths& paths);
void load_products(const SavePaths& paths);

}  // namespace adjoint
