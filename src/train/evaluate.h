// How well a model predicts texts, window by window, and answers questions.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batches.h"
#include "data/tokenizer.h"
#include "run/run.h"
#include "train/choices.h"

namespace adjoint {

// Goes once through the tokens with a run of an evaluation scheme, whose inputs are tokens and
// targets [batch, context]. What does not fill a window is left out. Nothing if `stop` interrupted
// it or no target was counted.
std::optional<double> mean_loss(Run& evaluation, std::span<const int32_t> tokens,
                                const std::atomic<bool>& stop);

// What an evaluation adds up: the loss of all that is counted, and how much that is.
struct LossSum {
  double sum = 0, count = 0;
  std::optional<double> mean() const {
    return count > 0 ? std::optional(sum / count) : std::nullopt;
  }
};

// Goes once through the data with a run of an evaluation scheme. Rows of the last batch that have
// no sample count for nothing, where the batches are padded with the target that is ignored.
// Nothing if `stop` interrupted it.
std::optional<LossSum> loss_in_order(Run& evaluation, const Batches& batches,
                                     const std::atomic<bool>& stop,
                                     const std::function<void(int64_t, int64_t)>& told);

// The tokens of a text file. A mistake names the file.
std::vector<int32_t> tokens_of(const std::filesystem::path& data, const Tokenizer& tokenizer);

// Tokens [begin, end) of a text, of which those from `first` on are predicted.
struct TextWindow {
  int64_t begin = 0, first = 0, end = 0;
  bool operator==(const TextWindow&) const = default;
};
// Windows over documents that end so, one behind the other: each reads at most `context` tokens of
// one document, begins `stride` tokens behind the one before, and predicts what none before it did.
// Thus every token but a document's first is predicted once.
std::vector<TextWindow> windows_over(std::span<const int64_t> ends, int64_t context,
                                     int64_t stride);

// How well a text is predicted.
struct Likelihood {
  std::string source = {};           // whose text it is
  int64_t tokens = 0;                // that were predicted
  std::optional<int64_t> bytes = 0;  // of the text; not known where the data were tokens
  double loss = 0;                   // mean of their negative log probabilities
  double perplexity() const;         // exp(loss)
  std::optional<double> bits_per_byte() const;
};

struct EvaluateOptions {
  // Texts, JSON lines, tokens, folders and patterns of them; none: the validation part of the run's
  // own data, in whole samples, as the run evaluates it.
  std::vector<std::string> data = {};
  bool by_file = false;  // results are a file's, and not those of all that one entry names
  std::string chat_template = {};      // of messages in JSON lines; "": the run's
  bool skip_bad = false;               // leave lines of JSON out that are broken
  int64_t stride = 0;                  // between windows; 0: they do not overlap
  std::filesystem::path choices = {};  // a file of questions, see train/choices.h
  std::string weights = {};    // a state that follows parameters, in their place: ema.average
  int64_t seq = 0, batch = 0;  // see EvaluatedModelOptions
  OnProgress told = nullptr;
};
struct EvaluateResult {
  std::optional<int64_t> step = {};     // of the run; none of a folder of Hugging Face's format
  std::optional<Likelihood> text = {};  // of all sources; none where there were questions alone
  std::vector<Likelihood> sources = {};
  std::optional<ChoiceScores> choices = {};
};
// The loss of a model on texts, and how many questions it answers. A run is evaluated with the
// stack that it was trained with.
EvaluateResult evaluate(const std::filesystem::path& model, const EvaluateOptions& options,
                        const PlanOptions& plan);

}  // namespace adjoint
