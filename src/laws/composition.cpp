#include "laws/composition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/philox.h"
#include "base/text.h"
#include "laws/shrink.h"

namespace adjoint {

namespace {

constexpr std::string_view kAnd = " | ";

// Example arguments of functors, for models of four blocks with width 32. A functor with a required
// argument needs a line here, and so does one that does nothing without another, which it brings.
const std::map<std::string, std::vector<std::string>, std::less<>>& examples() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> table = {
      {"accumulate", {"accumulate(4)"}},
      {"bucket", {"data_parallel(2) | bucket"}},
      {"checkpoint", {"checkpoint(every=2)"}},
      {"data_parallel", {"data_parallel(2)"}},
      {"dora", {"dora(rank=4)"}},
      {"freeze", {"freeze(attention)"}},
      {"lora", {"lora(rank=4)"}},
      {"lora_plus", {"lora_plus(rank=4)"}},
      {"pad_rows", {"pad_rows(least=16)"}},
      {"pipeline", {"pipeline(2)", "pipeline(2, schedule=zero_bubble)"}},
      {"prompt", {"prompt(n=3)"}},
      {"offload", {"offload(optimizer)", "offload(activations)", "offload(parameters)"}},
      {"qat", {"qat(bits=8, group=8)"}},
      {"qlora", {"qlora(rank=4, group=8)"}},
      {"quantize", {"quantize(int8, group=8)"}},
      {"recompute", {"recompute([attention, feed_forward], every=2)"}},
      {"rslora", {"rslora(rank=4)"}},
      {"tensor_parallel",
       {"tensor_parallel(2)", "tensor_parallel(2, sequence=yes)",
        "tensor_parallel(2, sequence=shards)"}},
      {"zero",
       {"data_parallel(2) | zero(1)", "data_parallel(2) | zero(2)", "data_parallel(2) | zero(3)"}},
  };
  return table;
}

std::vector<std::string> items_of(const Functor& functor) {
  if (functor.by_default && !functor.on_gpu_only) return {"-" + functor.name};
  const auto found = examples().find(functor.name);
  if (found != examples().end()) return found->second;
  for (const FunctorParam& p : functor.params) {
    CHECK(!p.otherwise.empty(), "examples() says what " + functor.name +
                                    " is told in the matrix: it must be told " + p.name);
  }
  return {functor.name};
}

// The functors of several items, each once: two of them may bring the same one.
std::vector<std::string> functors_of(const std::vector<std::string>& items) {
  std::vector<std::string> all;
  for (const std::string& item : items) {
    for (size_t at = 0; at <= item.size();) {
      const size_t end = std::min(item.find(kAnd, at), item.size());
      const std::string one = item.substr(at, end - at);
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
      at = end + kAnd.size();
    }
  }
  return all;
}

// A model with all runs on it.
struct Bench {
  std::string model;
  Judge judge;
};

std::vector<Bench> benches_for(const CompositionOptions& options) {
  std::vector<Bench> benches;
  for (const ModelText& text : options.models) {
    // Two ranks with four parts each have a sample a part.
    const ModelSizes sizes{.batch = 8, .context = 8};
    const BoundModel model(text, sizes);
    const BoundModel small =
        shrunken(model, {}, {.width = 32, .repeats = 4, .batch = 8, .context = 8, .vocab = 23});
    StepOptions step;
    step.eps = 1e-2;  // as in verify
    benches.push_back({model.name(), Judge({.forward = small.forward(),
                                            .options = step,
                                            .seeds = {options.seed},
                                            .what = describe(small)})});
  }
  return benches;
}

class Composer {
 public:
  Composer(const CompositionOptions& options, const Told& told)
      : options_(options), told_(told), benches_(benches_for(options)) {}

  Composition run() {
    Composition result{.items = matrix_items(), .pairs = {}, .stacks = {}};
    const auto n = static_cast<int64_t>(result.items.size());
    total_ = n * (n + 1) / 2 + options_.num_stacks;
    // Each functor alone comes first, because pairs are compared with it.
    result.pairs.resize(n);
    for (int64_t i = 0; i < n; ++i) {
      result.pairs[i].resize(i + 1);
      result.pairs[i][i] = composed({result.items[i]});
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        result.pairs[i][j] = composed({result.items[j], result.items[i]});
      }
    }
    for (int64_t k = 0; k < options_.num_stacks; ++k) {
      result.stacks.push_back(composed(drawn(result.items, k)));
    }
    return result;
  }

 private:
  // Three to six items, chosen so that most stacks are legal.
  std::vector<std::string> drawn(std::vector<std::string> items, int64_t k) const {
    const RandomStream stream{random_key(1, "composition"), static_cast<uint64_t>(k)};
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[stream.bits(i) % (i + 1)]);
    items.resize(std::min<size_t>(items.size(), 3 + k % 4));
    return items;
  }

  Composed composed(const std::vector<std::string>& items) {
    const std::vector<std::string> functors = functors_of(items);
    Composed result{.stack = join(functors, kAnd)};
    for (Bench& bench : benches_) hear(result, bench, functors);
    ++done_;
    if (told_) told_(done_, total_, result.stack);
    return result;
  }

  void hear(Composed& result, Bench& bench, const std::vector<std::string>& items) {
    Stack stack;
    try {
      stack = parse_stack(result.stack);
      bench.judge.built(stack);
    } catch (const Error& e) {
      result.refused.push_back(e.what());
      return;
    }
    const size_t before = result.broken.size();
    for (size_t i = 0; i < stack.functors.size(); ++i) {
      if (!stack.functors[i].by_default) judge(result, bench, stack, i);
    }
    result.law = std::max(result.law, law_of(stack));
    result.against = against(stack);
    // A functor that is switched off is judged in the stack where it is on.
    for (const std::string& off : stack.off) {
      result.law = std::max(result.law, judge_default(result, bench, items, off));
    }
    if (result.law > law_of(stack)) result.against.clear();  // it is true of the step as it comes
    if (&bench == &benches_[0]) check_orders(result, bench, stack, items);
    if (items.size() > 1) bench.judge.forget(stack);
    result.checked += result.broken.size() == before;
  }

  void judge(Composed& result, Bench& bench, const Stack& stack, size_t index) {
    const Verdict v = bench.judge.judge(stack, index);
    if (v.ok) return;
    result.broken.push_back(fmt::format("{}: {} is off by {:.2g} at {} where {:.2g} is allowed",
                                        bench.model, v.functor, v.error, v.tensor, v.allowed));
  }

  Law judge_default(Composed& result, Bench& bench, const std::vector<std::string>& items,
                    const std::string& off) {
    std::vector<std::string> others;
    for (const std::string& item : items) {
      if (item != "-" + off) others.push_back(item);
    }
    const Stack on = parse_stack(join(others, kAnd));
    for (size_t i = 0; i < on.functors.size(); ++i) {
      if (on.functors[i].functor.name != off) continue;
      judge(result, bench, on, i);
      return on.functors[i].functor.law;
    }
    return Law::kExact;
  }

  // Any order must give the same step; the reversed text and a rotation by one are tried.
  void check_orders(Composed& result, Bench& bench, const Stack& stack,
                    std::vector<std::string> items) {
    if (items.size() < 2) return;
    const std::string written = print(bench.judge.built(stack).scheme);
    const Subject& subject = bench.judge.subject();
    const auto check = [&] {
      const Stack other = parse_stack(join(items, kAnd));
      if (print(build_step(subject.forward, other, subject.options).scheme) == written) return;
      result.broken.push_back(bench.model + ": '" + join(items, kAnd) + "' is another step");
    };
    std::reverse(items.begin(), items.end());
    check();
    if (items.size() < 3) return;
    std::rotate(items.begin(), items.begin() + 1, items.end());
    check();
  }

  const CompositionOptions& options_;
  const Told& told_;
  std::vector<Bench> benches_;
  int64_t done_ = 0, total_ = 0;
};

// Reasons, each printed once and referred to by number.
class Notes {
 public:
  std::string number(const std::string& note) {
    const auto found = std::find(notes_.begin(), notes_.end(), note);
    const auto at = found - notes_.begin();
    if (found == notes_.end()) notes_.push_back(note);
    return fmt::format("<sup>{}</sup>", at + 1);
  }
  std::string print() const {
    std::string out;
    for (size_t i = 0; i < notes_.size(); ++i) out += fmt::format("{}. {}\n", i + 1, notes_[i]);
    return out;
  }

 private:
  std::vector<std::string> notes_;
};

// A bar would end the cell.
std::string in_a_cell(const std::string& stack) {
  std::string escaped;
  for (const char c : stack) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string cell(const Composed& composed, Notes& notes) {
  if (!composed.broken.empty()) return "**broken**" + notes.number(composed.broken[0]);
  std::string text = composed.checked > 0 ? std::string(name(composed.law)) : "refused";
  if (composed.checked > 0 && !composed.against.empty()) {
    text += " against `" + in_a_cell(composed.against) + "`";
  }
  if (composed.checked > 0 && !composed.refused.empty()) {
    text += fmt::format(", {} of {} models", composed.checked,
                        composed.checked + static_cast<int>(composed.refused.size()));
  }
  if (!composed.refused.empty()) text += notes.number(composed.refused[0]);
  return text;
}

}  // namespace

std::vector<std::string> matrix_items() {
  std::vector<std::string> items;
  for (const bool by_default : {false, true}) {
    for (const Functor* f : all_functors()) {
      if (f->by_default != by_default || f->of_forward) continue;
      for (const std::string& item : items_of(*f)) items.push_back(item);
    }
  }
  return items;
}

std::string stack_of_items(const std::vector<std::string>& items) {
  return join(functors_of(items), kAnd);
}

bool Composition::ok() const {
  const auto fine = [](const Composed& c) { return c.broken.empty(); };
  return std::all_of(stacks.begin(), stacks.end(), fine) &&
         std::all_of(pairs.begin(), pairs.end(), [&](const std::vector<Composed>& row) {
           return std::all_of(row.begin(), row.end(), fine);
         });
}

Composition compose_all(const CompositionOptions& options, const Told& told) {
  return Composer(options, told).run();
}

std::string to_markdown(const Composition& composition) {
  Notes notes;
  std::string out = "| |", rule = "|---|";
  for (const std::string& item : composition.items) {
    out += " `" + in_a_cell(item) + "` |";
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  const size_t n = composition.items.size();
  for (size_t i = 0; i < n; ++i) {
    out += "| `" + in_a_cell(composition.items[i]) + "` |";
    for (size_t j = 0; j < n; ++j) {
      out += j <= i ? " " + cell(composition.pairs[i][j], notes) + " |" : " |";
    }
    out += "\n";
  }
  out += "\n| stack | law |\n|---|---|\n";
  for (const Composed& stack : composition.stacks) {
    out += "| `" + in_a_cell(stack.stack) + "` | " + cell(stack, notes) + " |\n";
  }
  return out + "\n" + notes.print();
}

}  // namespace adjoint
