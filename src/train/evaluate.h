// The mean loss of a text, window by window.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "run/run.h"

namespace adjoint {

// Goes once through the tokens with a run of an evaluation scheme, whose inputs are tokens and
// targets [batch, context]. What does not fill a window is left out. Nothing if `stop` interrupted
// it or no target was counted.
std::optional<double> mean_loss(Run& evaluation, std::span<const int32_t> tokens,
                                const std::atomic<bool>& stop);

// The tokens of a text file. A mistake names the file.
std::vector<int32_t> tokens_of(const std::filesystem::path& data, const Tokenizer& tokenizer);

struct EvaluateOptions {
  std::filesystem::path data =
      {};                    // a text, all of it; empty: the validation part of the run's own
  std::string weights = {};  // a state that follows parameters, in their place: ema.average
};
struct EvaluateResult {
  int64_t step = 0;    // of the run
  int64_t tokens = 0;  // that were predicted
  double loss = 0;     // mean of their negative log probabilities
};
// The loss of a saved run, with the stack that it was trained with.
EvaluateResult evaluate_run(const std::filesystem::path& run, const EvaluateOptions& options,
                            const PlanOptions& plan);

}  // namespace adjoint
