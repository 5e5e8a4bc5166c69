// Text from a trained model: token by token, several texts at once.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/evaluated_model.h"
#include "train/sampler.h"

namespace adjoint {

struct GeneratorOptions {
  PlanOptions plan = {};     // it runs on this target, whatever the run was trained on
  std::string weights = {};  // a state that follows parameters, in their place: ema.average
  std::string stack = {};    // instead of the run's own, where it is said
  bool own_stack = true;
  // Tokens that the model sees at once; 0: as many as in training, or the model's context.
  int64_t seq = 0;
  bool whole_context = false;  // room for all of them from the beginning
  // Whether a step begins before the token that the last one drew is known: so that a GPU never
  // waits for the host. Nothing said: on a GPU.
  std::optional<bool> ahead = {};
};

struct Generated {
  std::string text;
  int64_t tokens = 0;
};
struct GenerationTimes {
  double first = 0;  // seconds until the first token of the first text
  double rest = 0;   // and from then on
  int64_t tokens = 0, tokens_of_rest = 0;
  double tokens_per_second() const { return rest > 0 ? tokens_of_rest / rest : 0; }
};

class Generator {
 public:
  // Of a run's folder or one of Hugging Face's format.
  Generator(const std::filesystem::path& folder, const GeneratorOptions& options);
  Generator(const std::filesystem::path& folder, const PlanOptions& plan,
            const std::string& weights = "")
      : Generator(folder, GeneratorOptions{.plan = plan, .weights = weights}) {}
  ~Generator();

  const Tokenizer& tokenizer() const { return model_.tokenizer(); }
  // That the run was trained with; "" where it was none, or the folder is no run's.
  const std::string& chat_template() const { return model_.config().chat_template; }

  // Called with the number of a text and what it has grown by.
  using OnText = std::function<void(int64_t, std::string_view)>;

  // The text that follows each prompt, in steps that all of them take together. Text i is sample
  // first + i of the seed, and is what it is alone, but for the order of sums in its prompt.
  std::vector<Generated> generate(const std::vector<std::vector<int32_t>>& prompts,
                                  const SampleOptions& options, int64_t first,
                                  const OnText& on_text);
  // The text that follows one prompt; `on_text` sees it grow.
  std::string generate(const std::string& prompt, const SampleOptions& options,
                       const std::function<void(std::string_view)>& on_text);

  // Texts end where they are once this becomes true; nullptr: nobody asks.
  void stop_when(const std::atomic<bool>* asked) { stop_ = asked; }

  const GenerationTimes& times() const { return times_; }  // of the last call

 private:
  struct Text;
  class Forward;
  class CachedForward;
  class WindowForward;

  void prepare(int64_t batch, int64_t positions);

  GeneratorOptions options_;
  EvaluatedModel model_;
  std::unique_ptr<Forward> forward_;
  GenerationTimes times_;
  const std::atomic<bool>* stop_ = nullptr;
};

}  // namespace adjoint
