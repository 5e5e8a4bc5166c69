#include "train/bound_model.h"

#include <cmath>

#include "base/error.h"
#include "functors/evaluation.h"
#include "models/format_config.h"
#include "train/save.h"

namespace adjoint {

BoundModel::BoundModel(ModelText text, const ModelSizes& sizes)
    : text_(std::move(text)),
      document_(parse_document(text_.text, text_.file)),
      batch_(sizes.batch) {
  config_.preset = text_.preset;
  for (const auto& [key, value] : sizes.settings.items()) {
    if (key == "batch" || key == "seq") {
      fail("setting '", key, "' is the run's: say --", key);
    }
    config_.settings[key] = value.get<double>();
  }
  const auto has_axis = [&](std::string_view name) {
    for (const Setting& axis : document_.axes) {
      if (axis.name == name) return true;
    }
    return false;
  };
  // Weights that exist have their own vocabulary, which may have more rows than there are tokens.
  const bool said = config_.settings.count("vocab") > 0 || !text_.weights.empty();
  const bool fits_vocab = sizes.vocab && has_axis("vocab");
  if (fits_vocab && !said) config_.settings["vocab"] = static_cast<double>(*sizes.vocab);
  if (sizes.context > 0 && has_axis("context")) {
    config_.settings["context"] = static_cast<double>(sizes.context);
  }
  if (sizes.context > 0) config_.settings["seq"] = static_cast<double>(sizes.context);
  if (sizes.seq > 0) config_.settings["seq"] = static_cast<double>(sizes.seq);
  config_.settings["batch"] = static_cast<double>(batch_);
  settings_ = resolve_settings(document_, text_.file, config_);
  if (fits_vocab && settings_.at("vocab") < static_cast<double>(*sizes.vocab)) {
    fail("vocab=", settings_.at("vocab"), " is too small: the tokenizer has ", *sizes.vocab,
         " tokens");
  }
  // Positions beyond the context have no row in a table of positions.
  if (sizes.seq > 0 && has_axis("context") &&
      settings_.at("context") < static_cast<double>(sizes.seq)) {
    fail("--seq ", sizes.seq, " is longer than the model's context, ", settings_.at("context"),
         "; say at most that, or train a model of a longer --context");
  }
  const auto seq = settings_.find("seq");
  if (seq == settings_.end()) {
    fail(text_.file,
         ": this model has no axis 'context', so say how long a sample is with --context");
  }
  context_ = static_cast<int64_t>(seq->second);
}

const Format& BoundModel::format() const {
  constexpr std::string_view kKind = "huggingface";
  const Format* format = find_format(document_, kKind, text_.architecture);
  if (!format)
    fail(text_.file, ": this model says nothing of the format ", kKind,
         "; give its text a `format` section (adjoint help formats)");
  return *format;
}

Scheme BoundModel::forward(int64_t batch, int64_t context, Written* written) const {
  ModelConfig config = config_;
  config.settings["batch"] = static_cast<double>(batch);
  config.settings["seq"] = static_cast<double>(context);
  Scheme scheme = elaborate(document_, text_.file, config, {}, written);
  scheme.name = text_.preset.empty() ? "model" : text_.preset;
  return scheme;
}

std::string print_of(const BoundModel& model, int64_t tokens) {
  return fingerprint(without_randomness(model.forward(1, tokens > 0 ? tokens : model.context())));
}

}  // namespace adjoint
