// A model's text with the sizes of a run bound to it.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/elaborate.h"
#include "models/library.h"

namespace adjoint {

struct ModelSizes {
  int64_t batch = 1;
  int64_t context = 0;                // 0: the model's own
  int64_t seq = 0;                    // tokens per sample, at most the context; 0: all of it
  std::optional<int64_t> vocab = {};  // the tokenizer's
  nlohmann::json settings = nlohmann::json::object();
};

class BoundModel {
 public:
  BoundModel(ModelText text, const ModelSizes& sizes);

  Scheme forward() const { return forward(batch_, context_); }
  Scheme forward(int64_t batch, int64_t context, Written* written = nullptr) const;
  Scheme forward(Written& written) const { return forward(batch_, context_, &written); }
  const ModelText& text() const { return text_; }
  int64_t batch() const { return batch_; }
  int64_t context() const { return context_; }  // tokens per sample
  const Settings& settings() const { return settings_; }
  const Document& document() const { return document_; }
  // How it stands in Hugging Face's format: that of its own architecture, or the first; a model
  // without any is an Error.
  const Format& format() const;
  std::string name() const { return text_.preset.empty() ? text_.file : text_.preset; }

 private:
  ModelText text_;
  Document document_;
  ModelConfig config_;
  Settings settings_;
  int64_t batch_, context_;
};

// Identifies the model by what it computes for one sample of so many tokens (see fingerprint); 0:
// of as many as the model is bound to.
std::string print_of(const BoundModel& model, int64_t tokens);

}  // namespace adjoint
