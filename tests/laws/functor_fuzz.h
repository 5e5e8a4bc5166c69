// Random functor texts, drawn from the grammar of functor_text.cpp, in stacks with built-in
// functors, on different small models. Every step must be refused in one sentence or obey its law,
// with freed memory poisoned.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "analysis/roles.h"
#include "base/temp_folder.h"
#include "laws/composition.h"
#include "laws/judge.h"
#include "laws/padded_models.h"
#include "models/test_models.h"
#include "train/bound_model.h"

namespace adjoint {

class FunctorWriter {
 public:
  explicit FunctorWriter(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }
  bool chance(int percent) { return static_cast<int>(below(100)) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

  std::string functor() {
    if (chance(8)) return stack_of_others();
    has_count_ = chance(30), has_words_ = chance(20);
    std::string rules;
    for (size_t n = 1 + below(3); n > 0; --n) rules += object_rule();
    if (chance(15)) {
      rules = morphism_rule() + (chance(30) ? morphism_rule() : "") + (chance(50) ? rules : "");
    }
    if (chance(6)) rules = loss_rule() + (chance(50) ? rules : "");
    if (chance(8)) rules = state_rule() + (chance(50) ? rules : "");
    std::string params;
    if (has_count_) params = "k = " + std::to_string(1 + below(3));
    if (has_words_) {
      params += (params.empty() ? "" : ", ") + std::string("on = ") + use() + ": several";
      for (const std::string& word : uses()) params += " | " + word;
    }
    std::string text = "# mine.functor: drawn at random\nfunctor mine";
    text += params.empty() ? ":\n" : "(" + params + "):\n";
    text += "  law " + std::string(name(law_)) + "\n";
    if (chance(10)) text += "  require L >= 1, else \"there are {L} blocks\"\n";
    return text + rules;
  }

  // None to four of the built-in functors.
  std::string stack() {
    std::vector<std::string> items = matrix_items();
    for (const char* more : {"bf16(gradients=bf16)", "checkpoint(block)", "checkpoint(selective)",
                             "checkpoint(all)", "accumulate(2)", "lora(rank=2, on=attention)"}) {
      items.emplace_back(more);
    }
    std::string text;
    // Room behind nearly every row, which poison fills.
    if (chance(30)) {
      text += " | pad_rows(least=4)";
      std::erase(items, "pad_rows(least=16)");
    }
    for (size_t n = below(4); n > 0 && !items.empty(); --n) {
      const std::string item = one_of(items);
      text += " | " + item;
      if (item.starts_with("quantize"))
        text += " | freeze(feed_forward)";  // it needs something frozen
      // The same functor twice is nearly always refused.
      std::erase_if(items, [&](const std::string& other) {
        return other.substr(0, other.find('(')) == item.substr(0, item.find('('));
      });
    }
    return text;
  }

 private:
  // A functor that is a stack of built-in ones, some told what it is told itself.
  std::string stack_of_others() {
    std::vector<std::string> parts = {"bf16",          "checkpoint(n)",   "lora(rank=2*n)",
                                      "accumulate(n)", "layer_decay",     "freeze(norm, first=n)",
                                      "-fuse",         "recompute(norm)", "offload(optimizer)"};
    std::string text =
        "# mine.functor: drawn at random\nfunctor mine(n = " + std::to_string(1 + below(2)) + ") =";
    for (size_t n = 1 + below(4); n > 0; --n) {
      const std::string part = one_of(parts);
      text += (text.ends_with("=") ? " " : " |\n  ") + part;
      if (chance(90)) std::erase(parts, part);
    }
    return text + "\n";
  }

  static const std::vector<std::string>& uses() {
    static const std::vector<std::string> words = {"embedding",     "attention",    "attention_in",
                                                   "attention_out", "feed_forward", "readout",
                                                   "norm",          "linear"};
    return words;
  }
  std::string use() { return one_of(uses()); }

  void weaken(Law law) { law_ = std::max(law_, law); }

  std::string value() {
    struct Value {
      const char* text;
      Law law;
      int weight;
    };
    static constexpr Value kValues[] = {{"bf16", Law::kApproximating, 30},
                                        {"f16", Law::kApproximating, 6},
                                        {"f32", Law::kApproximating, 5},
                                        {"tf32", Law::kApproximating, 3},
                                        {"kept", Law::kExact, 8},
                                        {"recomputed", Law::kExact, 12},
                                        {"apart", Law::kExact, 4},
                                        {"host", Law::kExact, 10},
                                        {"device", Law::kExact, 4},
                                        {"frozen", Law::kApproximating, 6},
                                        {"trained", Law::kApproximating, 2},
                                        {"in 2 parts", Law::kReassociating, 4},
                                        {"in 3 parts", Law::kReassociating, 2},
                                        {"rate 0.5", Law::kApproximating, 4},
                                        {"rate pow(0.5, L)", Law::kApproximating, 2},
                                        {"decay 0", Law::kApproximating, 3},
                                        {"rate 2 and decay 0.3", Law::kApproximating, 2},
                                        {"optimizer sgd", Law::kApproximating, 2},
                                        {"optimizer momentum", Law::kApproximating, 1},
                                        {"clipped as mine", Law::kApproximating, 3},
                                        {"sharded over data", Law::kExact, 2},
                                        {"replicated over data", Law::kExact, 2}};
    int all = 0;
    for (const Value& v : kValues) all += v.weight;
    auto at = static_cast<int>(below(all));
    for (const Value& v : kValues) {
      at -= v.weight;
      if (at >= 0) continue;
      weaken(v.law);
      return v.text;
    }
    return "kept";
  }

  // l is the number of a state in rules about x_l, and the block of what is found in others.
  std::string number(bool indexed) {
    std::vector<std::string> terms = {"1",     "2",        "L", "L - 1", "ceil(sqrt(L))",
                                      "2*L/3", "pow(2, 1)"};
    if (indexed) terms.insert(terms.end(), {"l", "l", "l + 1", "(L - l) mod 3"});
    if (has_count_) terms.insert(terms.end(), {"k", "k + 1"});
    return one_of(terms);
  }

  std::string comparison(bool indexed) {
    static const std::vector<std::string> relations = {"==", "!=", "<", ">", "<=", ">="};
    const std::string left = indexed ? "l" : number(false);
    if (indexed && chance(30)) return "l in [0, " + std::to_string(1 + below(4)) + "]";
    if (chance(40))
      return left + " mod " + (has_count_ ? "k" : "2") + (chance(70) ? " == 0" : " == L mod 2");
    return left + " " + one_of(relations) + " " + number(indexed);
  }

  std::string condition(bool indexed) {
    std::string text = comparison(indexed);
    if (chance(15)) text = "not " + text;
    if (chance(25)) text += (chance(50) ? " and " : " or ") + comparison(indexed);
    if (chance(10)) text = "not (" + text + ") or " + comparison(indexed);
    return text;
  }

  // A selector as people write it: a kind of object, and which ones.
  std::string usual_selector() {
    static const std::vector<std::string> kinds = {"activation",
                                                   "activation",
                                                   "activation",
                                                   "gradient",
                                                   "gradient of activation",
                                                   "gradient",
                                                   "gradient of parameter",
                                                   "parameter",
                                                   "frozen",
                                                   "optimizer_state",
                                                   "state",
                                                   "trained matrix"};
    std::string text = one_of(kinds);
    if (chance(35)) text += " of " + use();
    if (chance(35)) {
      text += chance(70) ? (chance(50) ? " inside block" : " inside chain") : " outside chain";
    }
    if (chance(10)) text += ", not inside attention";
    return text;
  }

  // A selector of many objects of any kind, for rules such as bf16's.
  std::string sweep() {
    static const std::vector<std::string> regions = {
        "inside attention", "inside feed_forward", "inside norm",      "inside block",
        "inside chain",     "outside chain",       "outside attention"};
    std::string text = one_of(regions);
    if (text == "inside attention" || text == "inside feed_forward") return text;
    return text + (chance(80) ? ", not parameter, not optimizer_state" : "");
  }

  std::string clause() {
    const std::string negated = chance(15) ? "not " : "";
    switch (below(7)) {
      case 6:
        return negated + (chance(30) ? "made" : chance(50) ? "made here as beside" : "made here");
      case 0:
        return negated + (chance(60) ? "inside " : "outside ") + one_of(region_words());
      case 1:
        return negated + "of " + (has_words_ && chance(60) ? "on" : one_of(of_words()));
      default:
        return negated + one_of(object_words());
    }
  }

  std::string selector(bool& indexed) {
    indexed = chance(20);
    if (indexed) return "x_l in chain" + std::string(chance(15) ? " " + clause() : "");
    if (chance(50)) return usual_selector();
    if (chance(40)) return sweep();
    std::string text = clause();
    for (size_t n = below(3); n > 0; --n) text += (chance(50) ? ", " : " ") + clause();
    return text;
  }

  std::string object_rule() {
    bool indexed = false;
    std::string text = "  object " + selector(indexed) + " -> " + value();
    if (chance(10)) text += chance(50) ? " unless made" : " unless made here";
    if (chance(indexed ? 80 : 30)) {
      text += " when " + condition(indexed || chance(60));
      if (chance(50)) text += ", else " + value();
    }
    return text + "\n";
  }

  std::string morphism_rule() {
    weaken(Law::kApproximating);
    static const std::vector<std::string> rewritten = {
        "y = linear(x, W) where parameter(W), inside chain",
        "y = linear(x, W) where feed_forward",
        "y = linear(x) where attention_in",
        "y = linear(x) where readout",
        "y = linear(x, W) where not router, not frozen(W)",
        "y = gelu(x)",
        "y = silu(x) where inside block",
        "y = add(a, x) where inside chain"};
    static const std::vector<std::string> terms = {
        "y",
        "0.5 * y",
        "0 * y",
        "y + x",
        "y - gelu(y)",
        "tanh(y)",
        "dropout(y, 0.2)",
        "rms_norm(y)",
        "y + 0 * linear(x, width(y), bias=no, name=beside)",
        "y + 0.5 * linear(x, width(y), name=beside)",
        "y * sigmoid(linear(linear(x, 4, bias=no, name=a), width(y), bias=no, name=b))",
        "y(0.5 * x)",
        "y(x, name=again) - 0.5 * y(x=0.1 * x)",
        "y / size(y, 0)",
        "where(index(y, 1) < 2, 0, y)"};
    static const std::vector<std::string> statements = {
        "    gain = param(width(y), init=ones)\n    -> y * gain\n",
        "    a = param(2, width(y), init=normal(0.1))\n    -> y + pad(a, 0, size(y, 1), axis=0)\n",
        "    a, b = 0.5 * y, param(width(y))\n    c = a + b\n    -> c * a\n",
        "    small = sum(y * y, keep) < width(y)\n    -> where(small, y, 0.5 * y)\n"};
    const std::string when = chance(40) ? " when " + condition(chance(80)) : "";
    const std::string head = "  morphism " + one_of(rewritten) + when + "\n";
    return chance(30) ? head + one_of(statements) : head + "    -> " + one_of(terms) + "\n";
  }

  std::string loss_rule() {
    weaken(Law::kApproximating);
    static const std::vector<std::string> terms = {
        "0.5 * y", "y + 0.1*average(mean(logits * logits), targets, ignore=ignore)",
        "y(tanh(logits)) - 0.25 * y", "y(logits, where(index(targets, 1) < 2, ignore, targets))",
        "average(max(logits), targets)"};
    return "  morphism y = cross_entropy(logits, targets)" +
           std::string(chance(40) ? " when training" : "") + "\n    -> " + one_of(terms) + "\n";
  }

  std::string state_rule() {
    static const std::vector<std::string> whose = {"trained", "matrix", "parameter inside chain",
                                                   "trained of norm", "table, not of readout"};
    static const std::vector<std::string> bodies = {
        " -> 0.5 * held + 0.5 * parameter\n",
        "\n    old = minimum(steps/(steps + 1), 0.9)\n    -> old*held + (1 - old)*parameter\n",
        " -> where(held < parameter, parameter, held)\n", " -> parameter * (l + 1)/L\n"};
    return "  state held of " + one_of(whose) + one_of(bodies);
  }

  std::mt19937 random_;
  Law law_ = Law::kExact;
  bool has_count_ = false, has_words_ = false;
};

// The result of one case.
struct FuzzOutcome {
  bool refused = false;
  std::string message = {};             // of a refusal
  std::vector<std::string> wrong = {};  // anything but a clear refusal or correct numbers
};

// The current case, printed when a CHECK aborts. A signal handler may do no more than write.
inline std::string& case_at_work() {
  static std::string text;
  return text;
}
inline void tell_case_on_abort() {
  std::signal(SIGABRT, [](int) {
    const std::string& text = case_at_work();
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  });
}

class FunctorFuzz {
 public:
  explicit FunctorFuzz(Target target = Target::kCpu) : target_(target) {
    tell_case_on_abort();
    for (const char* preset : {"char", "llama-tiny"}) add(find_model(preset), true);
    for (const char* model : kTestModels) add(find_model(test_model_file(model)), false);
    for (const PaddedModel& model : kPaddedModels) {
      if (model.beside[0] == 0) add(padded_model(model), false);
    }
  }

  FuzzOutcome run(uint32_t seed) {
    FunctorWriter writer(seed);
    const Model& model = models_[writer.below(models_.size())];
    const std::string text = writer.functor(), beside = writer.stack();
    return run(model, text, beside, writer, "seed " + std::to_string(seed));
  }
  // A case that was found once, as it was.
  FuzzOutcome run(const std::string& model, const std::string& text, const std::string& beside) {
    FunctorWriter writer(1);
    for (const Model& m : models_) {
      if (m.name == model) return run(m, text, beside, writer, "found once");
    }
    return {.wrong = {"there is no model " + model}};
  }
  const std::string& text() const { return text_; }  // of the last case

 private:
  struct Model {
    std::string name;
    Scheme forward;
  };

  FuzzOutcome run(const Model& model, const std::string& text, const std::string& beside,
                  FunctorWriter& writer, const std::string& which) {
    text_ = which + ", model " + model.name + ", beside '" + beside + "':\n" + text;
    case_at_work() = text_;
    const std::filesystem::path file = folder_ / "mine.functor";
    std::ofstream(file) << text;
    FuzzOutcome outcome;
    try {
      judge(model, file.string() + beside, writer, outcome);
    } catch (const Error& e) {
      outcome.refused = true;
      outcome.message = e.what();
      const bool clear = outcome.message.size() > 15 && outcome.message.size() < 1000 &&
                         outcome.message.find('\n') == std::string::npos;
      if (!clear) outcome.wrong.push_back("no clear refusal: " + outcome.message);
    } catch (const std::exception& e) {
      outcome.wrong.push_back(std::string("threw ") + e.what());
    }
    case_at_work().clear();
    return outcome;
  }
  void add(const ModelText& text, bool preset) {
    nlohmann::json settings = nlohmann::json::object();
    if (text.text.find("dropout=") != std::string::npos) settings["dropout"] = 0.1;
    const std::string layers = text.file.ends_with("odd.scheme") ? "fathoms" : "layers";
    settings[layers] = 2 + static_cast<int>(models_.size() % 2);
    if (preset) settings.update({{"hidden", 32}, {"heads", 4}, {"vocab", 37}});
    const BoundModel model(text, {.batch = 4, .context = 6, .settings = settings});
    models_.push_back({model.name(), model.forward()});
  }

  // Judges every functor that the stack names, and one of the defaults.
  void judge(const Model& model, const std::string& stack_text, FunctorWriter& writer,
             FuzzOutcome& outcome) {
    const Stack stack = parse_stack(stack_text);
    StepOptions options;
    options.eps = 1e-2;  // as in verify
    options.target = target_;
    options.deterministic = true;
    Judge judge({.forward = model.forward,
                 .options = options,
                 .seeds = {1},
                 .steps = 2,
                 .what = model.name,
                 .target = target_});
    const bool has_ranks = num_ranks(judge.built(stack).scheme.mesh) > 1;
    if (target_ == Target::kCuda && has_ranks) fail("a GPU alone is drawn no steps of ranks");
    const size_t chosen = writer.below(stack.functors.size());
    for (size_t i = 0; i < stack.functors.size(); ++i) {
      if (stack.functors[i].by_default && i != chosen) continue;
      const Verdict v = judge.judge(stack, i);
      if (v.ok) continue;
      outcome.wrong.push_back("the law of " + v.functor + " (" + std::string(name(v.law)) +
                              ") is broken at " + v.tensor + ": off by " + std::to_string(v.error) +
                              ", allowed " + std::to_string(v.allowed));
    }
    // The evaluation with the same stack must work, too.
    try {
      verify(evaluation_scheme(model.forward, stack, options));
    } catch (const Error& e) {
      outcome.wrong.push_back(std::string("trains, and its evaluation is refused: ") + e.what());
    }
  }

  Target target_;
  TempFolder folder_;
  std::vector<Model> models_;
  std::string text_;
};

struct FuzzCounts {
  int refused = 0, accepted = 0, wrong = 0;
};

inline FuzzCounts fuzz_functors(uint32_t first, uint32_t count, Target target = Target::kCpu) {
  FunctorFuzz fuzz(target);
  FuzzCounts counts;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const FuzzOutcome outcome = fuzz.run(seed);
    ++(!outcome.wrong.empty() ? counts.wrong : outcome.refused ? counts.refused : counts.accepted);
    for (const std::string& wrong : outcome.wrong) ADD_FAILURE() << wrong << "\n" << fuzz.text();
    if (std::getenv("ADJOINT_FUZZ_TELL")) {
      std::printf("%s=> %s\n", fuzz.text().c_str(),
                  outcome.refused ? outcome.message.c_str() : "accepted");
    }
  }
  return counts;
}

}  // namespace adjoint
