#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "analysis/input_ranges.h"
#include "base/error.h"
#include "base/note.h"
#include "base/text.h"
#include "data/byte_reader.h"
#include "data/corpus.h"
#include "data/token_stream.h"
#include "functors/evaluation.h"
#include "ops/segments.h"
#include "train/doubts.h"
#include "train/evaluated_model.h"
#include "train/fed_inputs.h"
#include "train/run_data.h"
#include "train/save.h"

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

std::optional<LossSum> loss_in_order(Run& evaluation, const Batches& batches,
                                     const std::atomic<bool>& stop,
                                     const std::function<void(int64_t, int64_t)>& told) {
  const Scheme& s = evaluation.scheme();
  Batch data(batches);
  LossSum all;
  const int64_t batch = batches.batch(), samples = batches.count_in_order();
  for (int64_t first = 0; first < samples; first += batch) {
    if (stop) return std::nullopt;
    batches.fill_in_order(first, data.to);
    feed(evaluation, batches, data);
    evaluation.step();
    all.sum += evaluation.number(s.outputs[0]);
    all.count += evaluation.number(s.outputs[1]);
    if (told) told(first / batch + 1, (samples + batch - 1) / batch);
  }
  return all;
}

std::vector<int32_t> tokens_of(const std::filesystem::path& data, const Tokenizer& tokenizer) {
  const std::string text = load_text(data);
  try {
    return tokenizer.encode(text);
  } catch (const Error& e) {
    fail(data.string(), ": ", e.what());
  }
}

std::vector<TextWindow> windows_over(std::span<const int64_t> ends, int64_t context,
                                     int64_t stride) {
  CHECK(stride >= 1 && stride <= context, "windows leave no token out");
  std::vector<TextWindow> windows;
  int64_t document = 0;
  for (const int64_t end : ends) {
    int64_t first = document + 1;
    for (int64_t begin = document; first < end; begin += stride) {
      windows.push_back({begin, first, std::min(begin + context + 1, end)});
      first = windows.back().end;
    }
    document = end;
  }
  return windows;
}

double Likelihood::perplexity() const { return std::exp(loss); }

std::optional<double> Likelihood::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return loss * static_cast<double>(tokens) / static_cast<double>(*bytes) / std::numbers::ln2;
}

namespace {

// Documents of one source, one behind the other.
struct Documents {
  std::vector<uint32_t> tokens;  // ids, with kNotTrained where the text is not the model's to write
  std::vector<int64_t> ends;
  std::optional<int64_t> bytes = 0;
};

void add_tokens(Documents& to, const DataFile& file, const Tokenizer& tokenizer) {
  const TokenStream stream =
      tokenize_source({.said = file.path.string(), .weight = {}, .files = {file}}, {}).tokens;
  if (stream.largest() >= tokenizer.vocab_size()) {
    fail(file.path.string(), ": wanted tokens below ", tokenizer.vocab_size(), ", found ",
         stream.largest());
  }
  const size_t begin = to.tokens.size();
  to.tokens.resize(begin + stream.size());
  stream.copy(0, stream.size(), to.tokens.data() + begin);
  to.ends.push_back(static_cast<int64_t>(to.tokens.size()));
  to.bytes.reset();
}

// As a run reads it: what a tokenizer puts around a document is around it here.
void add_texts(Documents& to, const DataFile& file, const DocumentOptions& options) {
  const bool lines = file.kind == DataKind::kJsonLines;
  int64_t bad_lines = 0;
  ChunkReader reader(std::span(&file, 1));
  while (const auto chunk = reader.next()) {
    const TokenizedChunk made = tokenize(*chunk, options);
    const auto begin = static_cast<int64_t>(to.tokens.size());
    to.tokens.insert(to.tokens.end(), made.tokens.begin(), made.tokens.end());
    if (lines) {
      for (const int64_t end : made.ends) to.ends.push_back(begin + end);
    }
    if (to.bytes) *to.bytes += made.bytes;
    bad_lines += made.bad_lines;
  }
  if (!lines) to.ends.push_back(static_cast<int64_t>(to.tokens.size()));
  if (bad_lines > 0) {
    note_once(file.path.string() + ": " + std::to_string(bad_lines) +
              " broken lines were left out");
  }
}

Documents read_documents(const DataSource& source, const DocumentOptions& options) {
  Documents documents;
  for (const DataFile& file : source.files) {
    if (file.kind == DataKind::kFields) {
      fail(file.path.string(), ": wanted texts, JSON lines or tokens (.bin), found fields");
    }
    if (file.kind == DataKind::kTokens) {
      add_tokens(documents, file, *options.tokenizer);
    } else {
      add_texts(documents, file, options);
    }
  }
  return documents;
}

// What there are results of: sources as they were said, or each of their files.
std::vector<DataSource> parts_of_data(const EvaluateOptions& options) {
  std::vector<DataSource> parts;
  for (const std::string& said : options.data) {
    DataSource source = find_source(said);
    if (source.weight) fail("--data ", said, ": weights are for training; wanted a path alone");
    if (!options.by_file) {
      parts.push_back(std::move(source));
      continue;
    }
    for (const DataFile& file : source.files) {
      parts.push_back({.said = file.path.string(), .weight = {}, .files = {file}});
    }
  }
  return parts;
}

// Refuses what a text cannot feed.
void check_inputs(const Scheme& scheme) {
  for (const Value in : scheme.inputs) {
    const std::string& name = scheme[in].source.path;
    if (scheme[in].role != Role::kInput || name == "tokens" || name == "targets") continue;
    fail("the model reads '", name, "', and only tokens and targets of a text can be fed here");
  }
}

// Refuses a loss that is no number, and names the parameter that made it so, if one did.
void check_finite(const Run& run, const std::string& source, double loss) {
  if (std::isfinite(loss)) return;
  fail(source, ": the loss is ", loss, EvaluatedModel::parameter_not_finite(run));
}

// `run` is of a scheme that likelihood_of made.
Likelihood likelihood(Run& run, const Documents& documents, int64_t stride,
                      const std::string& source, const OnProgress& told) {
  const Scheme& s = run.scheme();
  const Value tokens_in = input_named(s, "tokens"), targets_in = input_named(s, "targets");
  const int64_t batch = s[tokens_in].type.dim(0), context = s[tokens_in].type.dim(1);
  const auto windows = windows_over(documents.ends, context, stride > 0 ? stride : context);
  const auto count = static_cast<int64_t>(windows.size());
  const int32_t ignored = ignored_id(s);
  std::vector<int32_t> tokens(batch * context), targets(batch * context);
  double sum = 0, counted = 0;
  for (int64_t first = 0; first < count; first += batch) {
    // Behind a window's end a row has any token and counts for nothing.
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), ignored);
    const int64_t rows = std::min(batch, count - first);
    for (int64_t row = 0; row < rows; ++row) {
      const TextWindow& window = windows[first + row];
      for (int64_t at = window.begin; at + 1 < window.end; ++at) {
        const int64_t to = row * context + at - window.begin;
        const uint32_t next = documents.tokens[at + 1];
        tokens[to] = static_cast<int32_t>(documents.tokens[at] & ~kNotTrained);
        if (at + 1 >= window.first && !(next & kNotTrained)) {
          targets[to] = static_cast<int32_t>(next);
        }
      }
    }
    run.write(tokens_in, tokens.data());
    run.write(targets_in, targets.data());
    run.step();
    sum += run.number(s.outputs[0]);
    counted += run.number(s.outputs[1]);
    if (told) told(first + rows, count, "windows of " + source);
  }
  if (counted == 0) fail(source, ": wanted a text of two tokens or more, found none to predict");
  check_finite(run, source, sum / counted);
  return {.source = source,
          .tokens = std::llround(counted),
          .bytes = documents.bytes,
          .loss = sum / counted};
}

Likelihood all_of(const std::vector<Likelihood>& sources) {
  Likelihood all{.source = "all"};
  double sum = 0;
  for (const Likelihood& source : sources) {
    sum += source.loss * static_cast<double>(source.tokens);
    all.tokens += source.tokens;
    all.bytes =
        all.bytes && source.bytes ? std::optional(*all.bytes + *source.bytes) : std::nullopt;
  }
  all.loss = sum / static_cast<double>(all.tokens);
  return all;
}

// How many bytes of a plain text the targets are; nothing where the data are something else, or the
// tokenizer forgets some of a text.
std::optional<int64_t> bytes_of_targets(const TrainConfig& config, const Tokenizer& tokenizer,
                                        const Batches& batches, std::optional<int32_t> ignored) {
  const std::filesystem::path file = config.data[0];
  std::error_code none;
  const bool plain = config.data.size() == 1 && std::filesystem::is_regular_file(file, none) &&
                     kind_of(file) == DataKind::kText && without_compression(file) == file;
  if (!plain || tokenizer.decode(tokens_of(file, tokenizer)) != load_text(file)) {
    return std::nullopt;
  }
  std::set<int32_t> no_text;  // what is put around a text
  for (const SpecialToken& special : tokenizer.special_tokens()) no_text.insert(special.id);
  if (ignored) no_text.insert(*ignored);
  const auto& fields = batches.fields();
  const auto targets = std::find_if(fields.begin(), fields.end(),
                                    [](const Field& field) { return field.name == "targets"; });
  Batch data(batches);
  const auto* const ids = static_cast<const int32_t*>(data.to[targets - fields.begin()]);
  int64_t bytes = 0;
  const int64_t samples = batches.count_in_order();
  for (int64_t first = 0; first < samples; first += batches.batch()) {
    batches.fill_in_order(first, data.to);
    const int64_t rows = std::min(batches.batch(), samples - first);
    for (int64_t i = 0; i < rows * batches.context(); ++i) {
      if (no_text.count(ids[i])) continue;
      bytes += static_cast<int64_t>(tokenizer.bytes_of(ids[i], false).size());
    }
  }
  return bytes;
}

// The run's own validation part, gone through once as the run's evaluations with --eval-batches 0
// do. Counted is how likely the next tokens are, and nothing else of what was trained.
Likelihood validation_of(EvaluatedModel& model, const EvaluateOptions& options) {
  const std::string folder = model.folder().string();
  if (!model.is_run()) {
    fail(folder, ": a folder without a run has no data; say what to evaluate on: --data PATH");
  }
  if (options.stride > 0 || options.seq > 0) {
    fail("--stride and --seq: wanted --data PATH beside them");
  }
  TrainConfig config = model.config();
  config.out = folder;  // it may have been moved, and has what it tokenized beside it
  const RunData data = read_data(config, SavePaths(folder), "", model.data_print());
  const bool apart = config.documents == "apart";
  Scheme forward = model.model().forward();
  if (apart) forward = with_segments(std::move(forward));
  forward = likelihood_of(forward);
  const auto ignored = ignored_values(forward);
  Sampling sampling{.batch = model.batch(),
                    .context = model.context(),
                    .seed = static_cast<uint64_t>(config.seed),
                    .packing = data.packing,
                    .apart = apart};
  if (const auto of_targets = ignored.find("targets"); of_targets != ignored.end()) {
    sampling.ignored = static_cast<int32_t>(of_targets->second);
  }
  const std::vector<FieldWish> wishes = wished_fields(forward, model.model().text().file);
  Batches batches = data.corpus->batches(wishes, Split::kValidation, sampling);
  batches.pad_with(ignored);
  check_entries(*data.corpus, wishes, forward);
  const auto run = model.load(forward);
  const auto told = [&](int64_t done, int64_t of) {
    if (options.told) options.told(done, of, "batches of the validation part");
  };
  const LossSum found = *loss_in_order(*run, batches, std::atomic<bool>(false), told);
  const std::string source = join(config.data, ", ");
  if (!found.mean()) {
    fail(source,
         ": the validation part has no target that counts, so there is nothing to evaluate");
  }
  check_finite(*run, source, *found.mean());
  return {.source = source,
          .tokens = std::llround(found.count),
          .bytes = bytes_of_targets(config, model.tokenizer(), batches, sampling.ignored),
          .loss = *found.mean()};
}

std::vector<Likelihood> likelihoods_of_data(EvaluatedModel& model,
                                            const std::vector<DataSource>& parts,
                                            const EvaluateOptions& options) {
  if (options.stride > model.context()) {
    fail("--stride: wanted at most the window's ", model.context(), " tokens, found ",
         options.stride);
  }
  const std::string& named =
      options.chat_template.empty() ? model.config().chat_template : options.chat_template;
  std::optional<ChatTemplate> chat;
  if (!named.empty()) {
    chat = find_chat_template(named);
    const bool own = model.is_run() && named == model.config().chat_template;
    const std::string folder = own ? "" : model.folder().string();
    for (const std::string& doubt : doubts_about_template(*chat, model.tokenizer(), folder)) {
      warn_once(doubt);
    }
  }
  const DocumentOptions reading{.tokenizer = &model.tokenizer(),
                                .chat = chat ? &*chat : nullptr,
                                .skip_bad = options.skip_bad};
  const Scheme forward = likelihood_of(model.model().forward());
  check_inputs(forward);
  const auto run = model.load(forward);
  std::vector<Likelihood> results;
  for (const DataSource& part : parts) {
    results.push_back(
        likelihood(*run, read_documents(part, reading), options.stride, part.said, options.told));
  }
  return results;
}

}  // namespace

EvaluateResult evaluate(const std::filesystem::path& folder, const EvaluateOptions& options,
                        const PlanOptions& plan) {
  if (options.stride < 0) fail("--stride: wanted 0 or more, found ", options.stride);
  if (options.seq < 0) fail("--seq: wanted 0 or more, found ", options.seq);
  if (options.batch < 0) fail("--batch: wanted 0 or more, found ", options.batch);
  const std::vector<DataSource> parts = parts_of_data(options);
  const bool ids_alone =
      !parts.empty() && options.choices.empty() &&
      std::all_of(parts.begin(), parts.end(), [](const DataSource& part) {
        return std::all_of(part.files.begin(), part.files.end(),
                           [](const DataFile& file) { return file.kind == DataKind::kTokens; });
      });
  EvaluatedModel model(folder, {.plan = plan,
                                .weights = options.weights,
                                .seq = options.seq,
                                .batch = options.batch,
                                .ids_alone = ids_alone});
  EvaluateResult result;
  std::vector<Question> questions;  // read first: a broken line is told before anything is computed
  if (!options.choices.empty()) questions = read_questions(options.choices);
  if (!parts.empty()) {
    result.sources = likelihoods_of_data(model, parts, options);
    result.text = all_of(result.sources);
  } else if (questions.empty()) {
    result.text = validation_of(model, options);
    result.sources = {*result.text};
  }
  if (!questions.empty()) {
    result.choices = score(questions, choice_likelihoods(model, questions, options.told));
  }
  result.step = model.step();
  return result;
}

}  // namespace adjoint
