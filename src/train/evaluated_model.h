// A model that is there to be evaluated or sampled from: the folder of a run, or one of Hugging
// Face's format.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "run/run.h"
#include "train/bound_model.h"
#include "train/resolve_config.h"

namespace adjoint {

struct EvaluatedModelOptions {
  PlanOptions plan = {};     // it runs on this target, whatever the run was trained on
  std::string weights = {};  // a state that follows parameters, in their place: ema.average
  // Tokens that the model sees at once; 0: as many as in training, or the model's context.
  int64_t seq = 0;
  int64_t batch = 0;       // windows at once; 0: as many as in training, or a few
  bool ids_alone = false;  // it is shown tokens and no texts, so it needs no tokenizer
};

class EvaluatedModel {
 public:
  EvaluatedModel(const std::filesystem::path& folder, EvaluatedModelOptions options);

  const std::filesystem::path& folder() const { return folder_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const BoundModel& model() const { return *model_; }
  // Of the run; defaults where the folder is none.
  const TrainConfig& config() const { return resolved_.config; }
  StepOptions step_options() const;  // the run's own, for this target
  bool is_run() const { return is_run_; }
  int64_t batch() const { return model_->batch(); }
  int64_t context() const { return model_->context(); }

  // A run of this forward scheme of the model, as the run's stack has it, with the folder's
  // parameters.
  std::unique_ptr<Run> load(const Scheme& forward);
  // Gives a run that somebody built of the model, under the run's own stack, the folder's
  // parameters.
  void load_into(Run& run);
  // The same under any other stack. Codes are decoded, and those of the new stack are found anew; a
  // save that has parameters beside the model's own is refused.
  void load_under_another_stack(Run& run);
  std::optional<int64_t> step() const { return step_; }  // of the run, once something was loaded
  const std::string& data_print() const { return resolved_.data_print; }  // of the run
  // "; 'wte' holds numbers that are not finite", of the first such parameter of the run; else "".
  static std::string parameter_not_finite(const Run& run);

 private:
  Scheme one_sample() const;  // by which a save is known

  std::filesystem::path folder_;
  EvaluatedModelOptions options_;
  bool is_run_;
  ResolvedConfig resolved_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<BoundModel> model_;
  int64_t trained_with_ = 0;  // tokens per sample
  std::optional<int64_t> step_ = {};
};

}  // namespace adjoint
