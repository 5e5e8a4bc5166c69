#include "train/bound_model.h"

#include <cmath>

#include "base/error.h"

namespace adjoint {

BoundModel::BoundModel(ModelText text, const ModelSizes& sizes)
    : text_(std::move(text)),
      document_(parse_document(text_.text, text_.file)),
      batch_(sizes.batch) {
  config_.preset = text_.preset;
  for (const auto& [key, value] : sizes.settings.items()) {
    if (key == "batch" || key == "seq") {
      fail("setting '", key, "' is the run's: say --", key == "batch" ? "batch" : "context");
    }
    config_.settings[key] = value.get<double>();
  }
  const auto has_axis = [&](std::string_view name) {
    for (const Setting& axis : document_.axes) {
      if (axis.name == name) return true;
    }
    return false;
  };
  const bool said = config_.settings.count("vocab") > 0;
  if (sizes.vocab && has_axis("vocab")) {
    if (said && config_.settings["vocab"] < static_cast<double>(*sizes.vocab)) {
      fail("vocab=", config_.settings["vocab"], " is too small: the tokenizer has ", *sizes.vocab,
           " tokens");
    }
    if (!said) config_.settings["vocab"] = static_cast<double>(*sizes.vocab);
  }
  if (sizes.context > 0 && has_axis("context")) {
    config_.settings["context"] = static_cast<double>(sizes.context);
  }
  if (sizes.context > 0) config_.settings["seq"] = static_cast<double>(sizes.context);
  config_.settings["batch"] = static_cast<double>(batch_);
  settings_ = resolve_settings(document_, text_.file, config_);
  const auto seq = settings_.find("seq");
  if (seq == settings_.end()) {
    fail(text_.file,
         ": this model has no axis 'context', so say how long a sample is with --context");
  }
  context_ = static_cast<int64_t>(seq->second);
}

Scheme BoundModel::forward(int64_t batch, int64_t context) const {
  ModelConfig config = config_;
  config.settings["batch"] = static_cast<double>(batch);
  config.settings["seq"] = static_cast<double>(context);
  Scheme scheme = elaborate(document_, text_.file, config);
  scheme.name = text_.preset.empty() ? "model" : text_.preset;
  return scheme;
}

}  // namespace adjoint
