// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors, which has
// base_model.model.MODULE.lora_A.weight [rank, in] and ...lora_B.weight [out, rank] for every
// adapted module of a model in Hugging Face's format.
#pragma once
#include <filesystem>
#include <set>
#include <string>

#include "train/merge.h"
#include "train/model_folder.h"
#include "train/peft_config.h"

namespace adjoint {

class PeftAdapter {
 public:
  explicit PeftAdapter(const std::filesystem::path& folder);

  // Adds scale * b * a where the adapter has the parameter's module. All parameters of the model
  // are given to it, one after another; then `check_all_used` refuses tensors of the adapter that
  // belong to none.
  ParameterValues merged(ParameterValues values);
  void check_all_used() const;

  // Gives the adapter's matrices to what the run's stack added, which must be of the same rank and
  // scale. Maps that the adapter leaves alone keep what they began with.
  void load(const BoundModel& model, const std::vector<ThinPair>& pairs, Run& run);

 private:
  struct Matrices {
    const SafetensorView *a = nullptr, *b = nullptr;
    int64_t rank = 0;
    double scale = 1;
  };
  // Those of the parameter's module, checked; nothing if the adapter has none.
  std::optional<Matrices> find(const StoredTensors& stored);
  std::filesystem::path folder_;
  SafetensorsFile file_;
  PeftConfig config_;
  std::set<std::string> used_;
};

// Writes what a run's stack added to linear maps. `base` is the folder that the run began with, as
// adapter_config.json names it, or "".
void write_peft_adapter(const std::filesystem::path& out, const ThinPairs& adapters,
                        const std::string& base);

}  // namespace adjoint
