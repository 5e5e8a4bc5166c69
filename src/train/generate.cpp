// A text is a list of tokens and how many of them the model has seen. A step shows the model the
// next ones of every text; a text whose last token was seen gets one more. Prompts and single
// tokens are thus one loop, and texts of different lengths stand beside each other in one batch.
// Tokens are drawn where the logits are, and on a GPU the next step begins with them before they
// are known here: a text that ends has then seen one token in vain.
#include "train/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/activity.h"
#include "base/error.h"
#include "base/note.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "train/cached_model.h"
#include "train/fed_inputs.h"

namespace adjoint {

struct Generator::Text {
  std::vector<int32_t> tokens;
  size_t first = 0;  // that the model still knows of: where position 0 is
  size_t seen = 0;   // tokens that the model was shown
  bool done = false;

  bool waits() const { return !done && seen == tokens.size(); }
};

// Shows the model the next tokens of each text.
class Generator::Forward {
 public:
  Forward() = default;
  virtual ~Forward() = default;
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  using Choices = std::span<const TokenChoice>;  // one for each place of the batch

  virtual Run& run() = 0;  // whose parameters are the model's
  virtual int64_t batch() const = 0;
  virtual int64_t context() const = 0;
  virtual int64_t vocab() const = 0;
  virtual void step(std::vector<Text>& texts, Choices choices) = 0;
  // Of the step that was begun last, once it is done.
  virtual std::vector<float> logits(int64_t text, int64_t count) = 0;

  // Whether it draws tokens by itself. Only then are the next three called.
  virtual bool draws() const { return false; }
  // Whether steps may begin before the tokens of the last one are known.
  virtual bool goes_ahead() const { return false; }
  // Shows every text the token that the last step drew, which stands behind those that are known;
  // false: there is no room for it.
  virtual bool step_on(std::vector<Text>&, Choices) { return false; }
  // What the oldest step drew whose tokens were not taken yet.
  virtual std::vector<int32_t> take() { return {}; }

  virtual void begin(std::vector<Text>&) {}      // may find that it has seen some of them already
  virtual void end(const std::vector<Text>&) {}  // what it has seen of them by now
};

// What later tokens ask of earlier ones is kept.
class Generator::CachedForward : public Forward {
 public:
  CachedForward(const Scheme& logits, const StepOptions& options, const PlanOptions& plan,
                bool all_frozen, int64_t usable, std::optional<bool> ahead)
      : model_(logits, options, plan, {chunk_of(logits)}, all_frozen, usable),
        chunk_(chunk_of(logits)),
        ahead_(ahead.value_or(model_.ahead() > 0)),
        reached_(model_.batch(), 0) {}

  Run& run() override { return model_.run(); }
  int64_t batch() const override { return model_.batch(); }
  int64_t context() const override { return model_.context(); }
  int64_t vocab() const override { return model_.vocab(); }

  void begin(std::vector<Text>& texts) override {
    while (model_.asked() > 0) model_.take_drawn();  // of texts that somebody gave up
    for (size_t i = 0; i < texts.size() && i < kept_.size(); ++i) {
      if (kept_[i].first > 0 || texts[i].tokens.empty()) continue;
      const auto& known = kept_[i].tokens;
      const auto known_end = known.begin() + static_cast<ptrdiff_t>(kept_[i].seen);
      const auto common = std::mismatch(known.begin(), known_end, texts[i].tokens.begin(),
                                        texts[i].tokens.end() - 1);
      // The last position may have been written over while others went on.
      const auto seen = std::min<int64_t>(common.first - known.begin(), context() - 1);
      if (model_.may_go_back(seen, reached_[i])) texts[i].seen = seen;
    }
    kept_.clear();
  }

  void end(const std::vector<Text>& texts) override { kept_ = texts; }

  void step(std::vector<Text>& texts, Choices choices) override {
    size_t most = 0;
    for (Text& text : texts) {
      make_room(text);
      if (!text.done) most = std::max(most, text.tokens.size() - text.seen);
    }
    // A chunk takes about as long as a few single tokens.
    const int64_t count = most > 4 && chunk_ > 1 ? chunk_ : 1;
    std::vector<int32_t> tokens, origins, rows;
    for (int64_t b = 0; b < batch(); ++b) {
      Text* text = b < static_cast<int64_t>(texts.size()) ? &texts[b] : nullptr;
      const size_t at = text ? text->seen : 0;
      const size_t shown = text ? std::min<size_t>(count, text->tokens.size() - at) : 0;
      // A text that has ended, and a place without a text, repeat a position that is theirs.
      origins.push_back(
          text ? static_cast<int32_t>(std::min<size_t>(at - text->first, context() - 1)) : 0);
      rows.push_back(shown > 0 ? static_cast<int32_t>(shown) - 1 : 0);
      for (int64_t i = 0; i < count; ++i) {
        tokens.push_back(i < static_cast<int64_t>(shown) ? text->tokens[at + i] : 0);
      }
      if (text) text->seen += shown;
    }
    note_reached(origins, count);
    model_.step(tokens, origins, rows, choices);
    if (draws()) model_.ask_drawn();
  }

  std::vector<float> logits(int64_t text, int64_t count) override {
    return model_.logits(text, count);
  }

  bool draws() const override { return model_.draws(); }
  bool goes_ahead() const override { return ahead_; }
  std::vector<int32_t> take() override { return model_.take_drawn(); }

  bool step_on(std::vector<Text>& texts, Choices choices) override {
    std::vector<int32_t> origins(batch(), 0);
    for (size_t b = 0; b < texts.size(); ++b) {
      const Text& text = texts[b];
      const auto at = static_cast<int64_t>(text.seen - text.first);
      if (!text.done && at >= context()) return false;
      origins[b] = static_cast<int32_t>(std::min(at, context() - 1));
    }
    for (Text& text : texts) text.seen += !text.done;
    note_reached(origins, 1);
    model_.step_on(origins, choices);
    model_.ask_drawn();
    return true;
  }

 private:
  static int64_t chunk_of(const Scheme& logits) {
    return std::min<int64_t>(128, logits[input_named(logits, "tokens")].type.dim(1));
  }

  void note_reached(std::span<const int32_t> origins, int64_t count) {
    for (size_t b = 0; b < origins.size(); ++b) {
      const int64_t end = origins[b] + count;
      reached_[b] = origins[b] == 0 ? end : std::max(reached_[b], end);
    }
  }

  // A text that is longer than the context goes on from its last tokens, as if it began with them.
  void make_room(Text& text) const {
    const size_t room = context();
    if (text.done || text.tokens.size() - text.first <= room) return;
    text.first = text.tokens.size() - std::max<size_t>(1, room - room / 4);
    text.seen = text.first;
  }

  CachedModel model_;
  int64_t chunk_;
  bool ahead_;
  std::vector<Text> kept_;  // what the model has seen
  // Per place of the batch: one past the last position that was written.
  std::vector<int64_t> reached_;
};

// Every step runs the model on the last tokens of each text, as many as there is room for; causal
// attention ignores what is to the right of them.
class Generator::WindowForward : public Forward {
 public:
  WindowForward(const Scheme& logits, const StepOptions& options, const PlanOptions& plan) {
    const Scheme scheme = evaluation_scheme(logits, parse_stack(options.stack), options);
    run_ = std::make_unique<Run>(scheme, make_plan(scheme, plan));
    tokens_ = input_named(scheme, "tokens");
  }

  Run& run() override { return *run_; }
  int64_t batch() const override { return run_->scheme()[tokens_].type.dim(0); }
  int64_t context() const override { return run_->scheme()[tokens_].type.dim(1); }
  int64_t vocab() const override { return run_->scheme()[run_->scheme().outputs[0]].type.dim(-1); }

  void step(std::vector<Text>& texts, Choices) override {
    const Scheme& s = run_->scheme();
    for (const Value in : s.inputs) {
      if (s[in].role == Role::kInput && in != tokens_) run_->clear(in);
    }
    std::vector<int32_t> windows(batch() * context(), 0);
    last_.assign(batch(), 0);
    for (size_t b = 0; b < texts.size(); ++b) {
      Text& text = texts[b];
      const int64_t have = std::min<int64_t>(context(), static_cast<int64_t>(text.tokens.size()));
      std::copy(text.tokens.end() - have, text.tokens.end(),
                windows.begin() + static_cast<int64_t>(b) * context());
      last_[b] = have - 1;
      text.seen = text.tokens.size();
    }
    run_->write(tokens_, windows.data());
    run_->step();
  }

  std::vector<float> logits(int64_t text, int64_t count) override {
    return row_values(*run_, run_->scheme().outputs[0], text * context() + last_[text], count);
  }

 private:
  std::unique_ptr<Run> run_;
  Value tokens_ = -1;
  std::vector<int64_t> last_;
};

Generator::Generator(const std::filesystem::path& folder, const GeneratorOptions& options)
    : options_(options),
      model_(folder,
             {.plan = options.plan, .weights = options.weights, .seq = options.seq, .batch = 1}) {}

Generator::~Generator() = default;

void Generator::prepare(int64_t batch, int64_t positions) {
  const int64_t most = model_.context();
  // Rounded up, so that the next prompt may be a little longer.
  const int64_t wanted = options_.whole_context ? most : (positions + 63) / 64 * 64;
  const int64_t context = std::min(wanted, most);
  if (forward_ && forward_->batch() >= batch && forward_->context() >= context) return;
  const Activity activity("reading the model");
  forward_.reset();
  StepOptions step = model_.step_options();
  if (!options_.own_stack) step.stack = options_.stack;
  const auto logits = [&](int64_t length) {
    return logits_of(model_.model().forward(batch, length));
  };
  const Scheme cached = logits(context);  // a model that cannot be sampled from is refused here
  try {
    forward_ = std::make_unique<CachedForward>(cached, step, options_.plan, !options_.own_stack,
                                               tokenizer().vocab_size(), options_.ahead);
  } catch (const Error& e) {
    note_once(std::string(e.what()) + "; generate runs the whole window instead");
    forward_ = std::make_unique<WindowForward>(logits(most), step, options_.plan);
  }
  if (options_.own_stack) {
    model_.load_into(forward_->run());
  } else {
    model_.load_under_another_stack(forward_->run());
  }
}

std::vector<Generated> Generator::generate(const std::vector<std::vector<int32_t>>& prompts,
                                           const SampleOptions& options, int64_t first,
                                           const OnText& on_text) {
  check(options);
  CHECK(!prompts.empty(), "there is a prompt");
  size_t longest = 0;
  std::vector<Text> texts;
  for (const std::vector<int32_t>& prompt : prompts) {
    texts.push_back({.tokens = prompt});
    // A model that knows nothing yet is shown some token.
    if (prompt.empty()) texts.back().tokens.push_back(tokenizer().end_of_text().value_or(0));
    longest = std::max(longest, texts.back().tokens.size());
  }
  prepare(static_cast<int64_t>(prompts.size()), static_cast<int64_t>(longest) + options.tokens);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  times_ = {};
  auto first_token = begin;
  forward_->begin(texts);
  // The model may have more rows than the tokenizer has tokens.
  const int64_t usable = std::min(forward_->vocab(), tokenizer().vocab_size());
  // Repetition is weighed by a text that only the host has.
  const bool draws = forward_->draws() && options.repetition == 1;
  const bool ahead = draws && forward_->goes_ahead();
  std::vector<StoppedText> streams;
  for (const std::vector<int32_t>& prompt : prompts) {
    streams.emplace_back(tokenizer(), options.stops, prompt.empty());
  }
  std::vector<Generated> made(texts.size());
  const auto show = [&](size_t i, const std::string& grown) {
    if (on_text && !grown.empty()) on_text(static_cast<int64_t>(i), grown);
  };
  const auto of_all = [&](const auto& holds) {
    return std::all_of(texts.begin(), texts.end(), holds);
  };
  // How the token is drawn that follows `more` tokens which are not known yet.
  const auto choices = [&](int64_t more) {
    std::vector<TokenChoice> all(forward_->batch());
    for (size_t i = 0; i < texts.size(); ++i) {
      all[i] = choice_of(options, first + static_cast<int64_t>(i), made[i].tokens + more);
    }
    return all;
  };
  const auto finish = [&](size_t i) {
    texts[i].done = true;
    show(i, streams[i].finish());
    made[i].text = streams[i].text();
  };
  const auto add = [&](size_t i, int32_t token) {
    Text& text = texts[i];
    if (times_.tokens++ == 0) {
      times_.first = since(begin);
      first_token = Clock::now();
    }
    ++made[i].tokens;
    text.tokens.push_back(token);
    if (token == tokenizer().end_of_text()) {
      text.done = true;
    } else {
      show(i, streams[i].add(token));
      text.done = streams[i].stopped() || made[i].tokens >= options.tokens;
    }
    if (text.done) finish(i);
  };
  // From logits that are no numbers some token would be drawn all the same.
  const auto check_logits = [&](const std::vector<float>& logits) {
    const auto is_nan = [](float logit) { return std::isnan(logit); };
    if (std::none_of(logits.begin(), logits.end(), is_nan)) return;
    fail(model_.folder().string(), ": its logits are no numbers",
         EvaluatedModel::parameter_not_finite(forward_->run()));
  };
  bool begun = false;  // the step that shows tokens which are not known yet
  while (!of_all([](const Text& t) { return t.done; })) {
    if (!begun) forward_->step(texts, choices(0));
    std::vector<bool> waits(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) waits[i] = texts[i].waits();
    const bool all_wait = of_all([&](const Text& t) { return t.done || t.waits(); });
    const bool some_last = !of_all([&](const Text& t) {
      return t.done || made[&t - texts.data()].tokens + 1 < options.tokens;
    });
    begun = ahead && all_wait && !some_last && forward_->step_on(texts, choices(1));
    std::vector<int32_t> drawn;
    if (forward_->draws()) drawn = forward_->take();
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!waits[i]) continue;
      const auto row = static_cast<int64_t>(i);
      if (times_.tokens == 0) check_logits(forward_->logits(row, usable));
      add(i, draws ? drawn[i]
                   : sample_token(forward_->logits(row, usable), texts[i].tokens, options,
                                  first + row, made[i].tokens));
    }
    for (size_t i = 0; stop_ && *stop_ && i < texts.size(); ++i) {
      if (!texts[i].done) finish(i);
    }
  }
  if (begun) forward_->take();
  forward_->end(texts);
  times_.rest = since(first_token);
  times_.tokens_of_rest = times_.tokens - 1;
  return made;
}

std::string Generator::generate(const std::string& prompt, const SampleOptions& options,
                                const std::function<void(std::string_view)>& on_text) {
  return generate({tokenizer().encode_with_specials(prompt)}, options, 0,
                  [&](int64_t, std::string_view grown) {
                    if (on_text) on_text(grown);
                  })[0]
      .text;
}

}  // namespace adjoint
