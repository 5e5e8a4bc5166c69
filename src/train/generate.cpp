// Every token runs the model on the whole window; causal attention ignores what is to the right of
// it. A cache of keys and values would avoid the repetition, but there is no scheme for it yet.
#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "scheme/elements.h"
#include "train/fed_inputs.h"
#include "train/model_folder.h"
#include "train/resolve_config.h"
#include "train/save.h"

namespace adjoint {

namespace {

int32_t sample(std::vector<double> logits, const SampleOptions& options, int64_t at) {
  if (options.temperature <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t keep =
      options.top_k > 0 ? std::min<size_t>(options.top_k, order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + keep, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const double highest = logits[order[0]];
  double total = 0;
  for (size_t i = 0; i < keep; ++i) {
    total += logits[order[i]] = std::exp((logits[order[i]] - highest) / options.temperature);
  }
  double left = total * RandomStream{random_key(options.seed, "generate"), 0}.uniform(at);
  for (size_t i = 0; i < keep; ++i) {
    left -= logits[order[i]];
    if (left < 0) return order[i];
  }
  return order[0];
}

// The first `count` numbers of a row. On a GPU only these are copied, because all logits of a
// window may be hundreds of megabytes.
std::vector<double> row_of(const Run& run, Value v, int64_t row, int64_t count) {
  const Type& type = run.scheme()[v].type;
  const Strides& strides = run.plan().places[v].strides;
  CHECK(strides.back() == 1, "the numbers of a row lie side by side");
  const Bytes size = size_of(type.dtype);
  const auto* at =
      static_cast<const std::byte*>(run.data(v)) + row * strides[strides.size() - 2] * size.count;
  std::vector<std::byte> copy(run.on_gpu() ? count * size.count : 0);
  if (run.on_gpu()) {
    run.stream()->copy(copy.data(), at, count * size);
    run.synchronize();
    at = copy.data();
  }
  std::vector<double> numbers(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = load_element(at, type.dtype, i);
  return numbers;
}

}  // namespace

Generator::Generator(const std::filesystem::path& folder, const PlanOptions& options,
                     const std::string& weights, int64_t seq) {
  const SavePaths paths(folder);
  if (!std::filesystem::is_directory(folder)) {
    fail(folder.string(),
         ": there is no such folder; --model takes the --out folder of a training run");
  }
  // A folder of Hugging Face's format is a model without a run.
  const bool is_run =
      std::filesystem::exists(paths.run()) || !std::filesystem::exists(folder / "config.json");
  auto [config, text, data, given] =
      is_run ? saved_config(folder)
             : ResolvedConfig{.config = make_config({}), .text = find_model(folder.string())};
  if (!is_run && !weights.empty()) {
    fail(folder.string(), ": --weights is of a training run; this folder has parameters alone");
  }
  tokenizer_ = load_tokenizer(paths.tokenizer());
  model_ = std::make_unique<BoundModel>(std::move(text),
                                        ModelSizes{.batch = 1,
                                                   .context = config.context,
                                                   .seq = seq > 0 ? seq : config.seq,
                                                   .vocab = tokenizer_->vocab_of_model(),
                                                   .settings = config.settings});
  config.step.target = options.target;
  const Scheme scheme =
      evaluation_scheme(logits_of(model_->forward()), parse_stack(config.step.stack), config.step);
  run_ = std::make_unique<Run>(scheme, make_plan(scheme, options));
  if (!is_run) {
    ModelFolder(folder).load(*model_, *run_);
    return;
  }
  const std::string print = fingerprint(without_randomness(model_->forward(1, model_->context())));
  load_state(paths, *run_, false, print, weights);
}

std::string Generator::generate(const std::string& prompt, const SampleOptions& options,
                                const std::function<void(std::string_view)>& on_text) {
  std::vector<int32_t> tokens = tokenizer_->encode_with_specials(prompt);
  if (on_text) on_text(prompt);
  TextStream stream(*tokenizer_, tokens.empty());
  // A text of its own begins where another ended.
  if (tokens.empty()) tokens.push_back(tokenizer_->end_of_text().value_or(0));
  const Scheme& s = run_->scheme();
  const Value input = input_named(s, "tokens");
  const Value logits = s.outputs[0];
  const int64_t context = model_->context(), vocab = s[logits].type.dim(-1);
  std::string shown;
  const auto show = [&](const std::string& text) {
    if (on_text) on_text(text);
    shown += text;
  };
  for (int64_t n = 0; n < options.tokens; ++n) {
    const int64_t have = std::min<int64_t>(context, static_cast<int64_t>(tokens.size()));
    std::vector<int32_t> window(tokens.end() - have, tokens.end());
    window.resize(context);
    // What else a model is fed is the data's, and nothing here: no segment but the first, no
    // teacher.
    for (const Value in : s.inputs) {
      if (s[in].role == Role::kInput && in != input) run_->clear(in);
    }
    run_->write(input, window.data());
    run_->step();
    // The model may have more rows than the tokenizer has tokens.
    const int64_t usable = std::min(vocab, tokenizer_->vocab_size());
    tokens.push_back(sample(row_of(*run_, logits, have - 1, usable), options, n));
    show(stream.next(tokens.back()));
  }
  show(stream.finish());
  return shown;
}

}  // namespace adjoint
