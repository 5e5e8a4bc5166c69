#include "train/evaluated_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file_view.h"
#include "base/near_path.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "run/random_steps.h"
#include "train/model_folder.h"
#include "train/preset_weights.h"
#include "train/saved_parameters.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// Windows at once of a folder that does not say: of GPT-2's, a gigabyte of logits.
constexpr int64_t kUsualBatch = 4;

bool is_folder_of_run(const fs::path& folder) {
  if (!fs::is_directory(checked_path(folder))) {
    check_no_preset(folder);
    fail(folder.string(),
         ": there is no such folder; --model takes the --out folder of a training run, or a folder "
         "of Hugging Face's format",
         did_you_mean_folder(folder));
  }
  return is_visible(SavePaths(folder).run()) || !is_visible(folder / "config.json");
}

int64_t samples_at_once(const EvaluatedModelOptions& options, bool is_run,
                        const TrainConfig& config) {
  if (options.batch > 0) return options.batch;
  return is_run ? config.batch : kUsualBatch;
}

}  // namespace

EvaluatedModel::EvaluatedModel(const fs::path& folder, EvaluatedModelOptions options)
    : folder_(folder),
      options_(std::move(options)),
      is_run_(is_folder_of_run(folder)),
      resolved_(is_run_ ? saved_config(folder)
                        : ResolvedConfig{.config = make_config({}),
                                         .text = find_model(folder.string())}) {
  if (!is_run_ && !options_.weights.empty()) {
    fail(folder.string(), ": --weights is of a training run; this folder has parameters alone");
  }
  try {
    tokenizer_ = load_tokenizer(is_run_ ? SavePaths(folder).tokenizer() : folder);
  } catch (const Error&) {
    if (!options_.ids_alone || is_run_) throw;
  }
  const TrainConfig& config = resolved_.config;
  model_ = std::make_unique<BoundModel>(
      resolved_.text, ModelSizes{.batch = samples_at_once(options_, is_run_, config),
                                 .context = config.context,
                                 .seq = options_.seq > 0 ? options_.seq : config.seq,
                                 .vocab = tokenizer_ ? tokenizer_->vocab_of_model() : std::nullopt,
                                 .settings = config.settings});
  if (!tokenizer_)
    tokenizer_ = make_ids_tokenizer(ids_below(model_->forward(1, model_->context())));
  trained_with_ = resolved_.printed_with > 0 ? resolved_.printed_with
                  : config.seq > 0           ? config.seq
                                             : config.context;
  if (trained_with_ == 0) {
    const auto own = model_->settings().find("context");
    trained_with_ =
        own == model_->settings().end() ? model_->context() : static_cast<int64_t>(own->second);
  }
  // Refused before memory is taken: a folder that is not what its config.json says.
  if (!is_run_) ModelFolder(folder).parameters(*model_);
}

StepOptions EvaluatedModel::step_options() const {
  StepOptions step = resolved_.config.step;
  step.target = options_.plan.target;
  return step;
}

Scheme EvaluatedModel::one_sample() const { return model_->forward(1, trained_with_); }

std::unique_ptr<Run> EvaluatedModel::load(const Scheme& forward) {
  const StepOptions step = step_options();
  const Scheme scheme = evaluation_scheme(forward, parse_stack(step.stack), step);
  auto run = std::make_unique<Run>(scheme, make_plan(scheme, options_.plan));
  load_into(*run);
  return run;
}

void EvaluatedModel::load_into(Run& run) {
  if (!is_run_) return ModelFolder(folder_).load(*model_, run);
  const std::string print = fingerprint(without_randomness(one_sample()));
  step_ = load_state(SavePaths(folder_), run, false, print, options_.weights);
}

std::string EvaluatedModel::parameter_not_finite(const Run& run) {
  for (const Value in : run.scheme().inputs) {
    const Object& object = run.scheme()[in];
    if (object.role != Role::kParameter || !is_float(object.type.dtype)) continue;
    const std::vector<double> numbers = run.values(in);
    const auto is_finite = [](double number) { return std::isfinite(number); };
    if (std::all_of(numbers.begin(), numbers.end(), is_finite)) continue;
    return "; '" + to_string(object.source) + "' holds numbers that are not finite";
  }
  return "";
}

void EvaluatedModel::load_under_another_stack(Run& run) {
  if (!is_run_) return ModelFolder(folder_).load(*model_, run);
  if (!options_.weights.empty()) fail("--weights: goes with the run's own stack, not with --stack");
  const SavedModel saved{SavePaths(folder_)};
  const Scheme one = one_sample(), plain = without_randomness(one);
  const Scheme held = held_by(saved, one, resolved_.config.step);
  saved.check_model(fingerprint(plain));
  give_parameters(saved, held, plain, run);
  step_ = saved.step();
}

}  // namespace adjoint
