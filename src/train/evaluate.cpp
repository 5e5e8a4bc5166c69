#include "train/evaluate.h"

#include <vector>

#include "base/error.h"
#include "data/corpus.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "train/bound_model.h"
#include "train/resolve_config.h"
#include "train/save.h"
#include "train/trainer.h"

namespace adjoint {

namespace {

// The id that the loss does not count.
int32_t ignored_id(const Scheme& forward) {
  for (const Morphism& m : forward.morphisms) {
    if (op_named(m.op).loss) return static_cast<int32_t>(ignored_target(call_of(forward, m)));
  }
  return -1;
}

}  // namespace

std::optional<double> mean_loss(Run& evaluation, std::span<const int32_t> all,
                                const std::atomic<bool>& stop) {
  const Scheme& s = evaluation.scheme();
  const Value tokens_in = input_named(s, "tokens"), targets_in = input_named(s, "targets");
  const int64_t batch = s[tokens_in].type.dim(0), context = s[tokens_in].type.dim(1);
  std::vector<int32_t> tokens(batch * context), targets(batch * context);
  const int64_t windows = (static_cast<int64_t>(all.size()) - 1) / context;
  const int32_t ignored = ignored_id(s);
  double sum = 0, count = 0;
  // Rows of the last batch that have no window count for nothing.
  for (int64_t first = 0; first < windows; first += batch) {
    if (stop) return std::nullopt;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t window = std::min(first + row, windows - 1);
      for (int64_t i = 0; i < context; ++i) {
        tokens[row * context + i] = all[window * context + i];
        targets[row * context + i] =
            first + row < windows ? all[window * context + i + 1] : ignored;
      }
    }
    evaluation.write(tokens_in, tokens.data());
    evaluation.write(targets_in, targets.data());
    evaluation.step();
    sum += evaluation.number(s.outputs[0]);
    count += evaluation.number(s.outputs[1]);
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::vector<int32_t> tokens_of(const std::filesystem::path& data, const Tokenizer& tokenizer) {
  const std::string text = load_text(data);
  try {
    return tokenizer.encode(text);
  } catch (const Error& e) {
    fail(data.string(), ": ", e.what());
  }
}

EvaluateResult evaluate_run(const std::filesystem::path& folder, const EvaluateOptions& options,
                            const PlanOptions& plan) {
  const SavePaths paths(folder);
  if (!std::filesystem::is_directory(folder)) {
    fail(folder.string(),
         ": there is no such folder; --model takes the --out folder of a training run");
  }
  ResolvedConfig resolved = saved_config(folder);
  TrainConfig& config = resolved.config;
  config.step.target = plan.target;
  const auto tokenizer = load_tokenizer(paths.tokenizer());
  const BoundModel model(resolved.text, {.batch = config.batch,
                                         .context = config.context,
                                         .seq = config.seq,
                                         .vocab = tokenizer->vocab_of_model(),
                                         .settings = config.settings});
  const Scheme scheme =
      evaluation_scheme(model.forward(), parse_stack(config.step.stack), config.step);
  for (const Value in : scheme.inputs) {
    const std::string& name = scheme[in].source.path;
    if (scheme[in].role != Role::kInput || name == "tokens" || name == "targets") continue;
    fail("the model reads '", name, "', and only tokens and targets of a text can be fed here");
  }
  if (options.data.empty() && config.data.size() != 1) {
    fail(folder.string(), ": this run has ", config.data.size(),
         " sources of data; say which text to evaluate on: --data FILE");
  }
  const std::filesystem::path data =
      options.data.empty() ? std::filesystem::path(config.data[0]) : options.data;
  std::vector<int32_t> tokens = tokens_of(data, *tokenizer);
  if (options.data.empty()) {
    const int64_t trained_on =
        tokens_to_train_on(static_cast<int64_t>(tokens.size()), config.val_fraction);
    tokens.erase(tokens.begin(), tokens.begin() + trained_on);
  }
  Run run(scheme, make_plan(scheme, plan));
  const std::string print = fingerprint(without_randomness(model.forward(1, model.context())));
  EvaluateResult result{.step = load_state(paths, run, false, print, options.weights)};
  const auto loss = mean_loss(run, tokens, std::atomic<bool>(false));
  if (!loss) {
    fail(data.string(), ": ", options.data.empty() ? "its validation part" : "it",
         " is too short for one window of ", model.context(), " tokens");
  }
  result.loss = *loss;
  const int64_t windows = (static_cast<int64_t>(tokens.size()) - 1) / model.context();
  result.tokens = windows * model.context();
  return result;
}

}  // namespace adjoint
