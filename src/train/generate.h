// Text from a trained model, one token at a time.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "run/run.h"
#include "train/bound_model.h"

namespace adjoint {

struct SampleOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all
  uint64_t seed = 1;
};

class Generator {
 public:
  // Of a run's folder or one of Hugging Face's format. Runs on the target in `options`, whatever
  // the run was trained on; with the parameters, or, where `weights` names one, with a state that
  // follows them, `ema.average`. The model sees the last `seq` tokens; 0: as many as in training,
  // or its context.
  Generator(const std::filesystem::path& folder, const PlanOptions& options,
            const std::string& weights = "", int64_t seq = 0);

  // The text that follows the prompt; `on_text` sees the prompt, then the text as it grows.
  std::string generate(const std::string& prompt, const SampleOptions& options,
                       const std::function<void(std::string_view)>& on_text);

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<BoundModel> model_;
  std::unique_ptr<Run> run_;
};

}  // namespace adjoint
