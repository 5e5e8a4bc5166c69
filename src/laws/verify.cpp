#include "laws/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/text.h"
#include "laws/coverage.h"
#include "laws/later_tokens.h"
#include "laws/reach.h"
#include "laws/shrink.h"

namespace adjoint {

namespace {

constexpr int64_t kWidths[] = {64, 256};
constexpr int kSteps = 2;
constexpr int64_t kBatch = 6, kRepeats = 4;
constexpr int64_t kEvenBatch = 840;  // divides into any few parts
// A copy of this many narrow blocks still takes seconds; what acts only in longer models is
// reported as unseen.
constexpr int64_t kMostRepeats = 24;

// A copy that goes on for longer than the others, for what is far from the beginning: fewer
// samples, one seed and one step, so that it takes as long as the others. `kMost...` are measured
// on two cores, with docs/composition.md's ten seconds in view; what is further is reported as
// unseen.
constexpr int64_t kMostContext = 512, kMostBatch = 64, kMostVocab = 2048;
constexpr int kMostCounts = 3;      // copies that begin behind so many steps
constexpr int64_t kBehind = 6;      // positions behind the furthest place
constexpr int64_t kFirstBatch = 2;  // samples of a far copy, if the stack takes so few

// Adam divides a gradient by its own magnitude, so even a gradient that is only noise makes a full
// step. This larger epsilon keeps noise small and tests the same kernel.
constexpr double kSmoothEps = 1e-2;

// The whole numbers that the stack passes under one of these argument names.
std::vector<int64_t> arguments_named(const Stack& stack,
                                     std::initializer_list<std::string_view> names) {
  std::vector<int64_t> found;
  for (const StackedFunctor& f : stack.functors) {
    for (const FunctorParam& p : f.functor.params) {
      if (std::find(names.begin(), names.end(), p.name) == names.end() || f.args.is_word(p.name)) {
        continue;
      }
      for (const Term& term : f.args.list(p.name)) {
        if (term.kind == Term::Kind::kNumber) found.push_back(static_cast<int64_t>(term.number));
      }
    }
  }
  return found;
}
int64_t largest_argument(const Stack& stack, std::initializer_list<std::string_view> names) {
  const std::vector<int64_t> all = arguments_named(stack, names);
  return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
}

// The functor because of which the stack is refused: the first without which it is legal. Most
// messages name the functor themselves.
std::string blamed(const Subject& subject, const Stack& stack, const std::string& complaint) {
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    const std::string& name = stack.functors[i].functor.name;
    const std::vector<std::string>& within = stack.functors[i].within;
    if (complaint.starts_with(within.empty() ? name : within[0])) return complaint;
  }
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    try {
      build(subject, without(stack, i));
      return stack.functors[i].print() + ": " + complaint;
    } catch (const std::exception&) {  // still refused, for this reason or another
    }
  }
  return complaint;
}

bool is_refused(const Scheme& forward, const Stack& stack, const StepOptions& options) {
  try {
    build_step(forward, stack, options);
    return false;
  } catch (const std::exception&) {  // reported when the stack is judged
    return true;
  }
}

// The ranks that run the model's step; none where the stack is refused.
std::vector<MeshAxis> mesh_of(const ModelText& text, ModelSizes sizes, const Stack& stack,
                              const StepOptions& options) {
  if (sizes.batch <= 0) sizes.batch = kEvenBatch;
  try {
    return build_step(BoundModel(text, sizes).forward(), stack, options).scheme.mesh;
  } catch (const std::exception&) {  // reported when the stack is judged
    return {};
  }
}

// How many samples a copy may have, the best number first: the last part of the batch and the last
// rank are not full, unless the model cannot have such a part. A part of a rank has at least a
// sample.
std::vector<int64_t> batches_to_try(const Stack& stack, int64_t ranks) {
  const std::vector<int64_t> arguments = arguments_named(stack, {"n"});
  const int64_t parts = std::max(largest_argument(stack, {"n"}), ranks);
  if (parts <= 1) return {kBatch};
  std::vector<int64_t> all = {std::max(2 * parts - 1, kBatch + 1)};
  for (const int64_t samples : {3, 5, 9}) {  // of a rank
    if (ranks > 1) all.push_back(ranks * samples - 1);
  }
  all.push_back((kBatch + parts - 1) / parts * parts);
  all.push_back(
      std::accumulate(arguments.begin(), arguments.end(), int64_t{1}, std::multiplies<>()));
  return all;
}

// The worse of two verdicts on one functor, at two sizes.
bool is_worse(const Verdict& a, const Verdict& b) {
  if (a.ok != b.ok) return !a.ok;
  return a.error * b.allowed > b.error * a.allowed;
}

// A functor that acts in the model but not in a small copy gets arguments with which it acts there
// (`on_small`), if it has any.
Stack told_for_small(const Stack& stack, const Coverage& model, const Coverage& copy) {
  Stack told = stack;
  for (const Deed& deed : missing(model, copy)) {
    if (deed.functor >= told.functors.size()) continue;  // a call
    StackedFunctor& f = told.functors[deed.functor];
    Term call{.kind = Term::Kind::kCall};
    bool differs = false;
    for (const FunctorParam& p : f.functor.params) {
      const bool is_default = print(f.args.term(p.name)) == p.otherwise;
      differs |= is_default && !p.on_small.empty();
      call.keywords.emplace_back(p.name, is_default && !p.on_small.empty()
                                             ? parse_term(p.on_small, f.functor.name)
                                             : f.args.term(p.name));
    }
    const bool idle = deed.branch.empty() && deed.at.empty();
    if (idle && differs) f.args = Arguments(f.functor.name, f.functor.params, call);
  }
  return told;
}

// Finds how many blocks a small copy needs to cover all that a stack does in the model.
struct Grower {
  const BoundModel& model;
  const nlohmann::json& set;
  const StepOptions& step;
  mutable std::string refused = {};  // why the last copy was refused

  std::optional<Coverage> coverage(const BoundModel& of, const Stack& stack) const {
    try {
      return coverage_of(of.forward(), stack, step);
    } catch (const Error& e) {
      refused = e.what();
      return std::nullopt;
    }
  }

  // Returns the copy, and sets its number of blocks in `wish`. A stack that a short copy refuses
  // may suit a longer one. If no copy covers everything, the shortest that covers most is taken; if
  // all are refused, the longest one's reason is reported.
  BoundModel grow(ShrinkWish& wish, Checkup& checkup) const {
    const std::optional<Coverage> whole = coverage(with_rates(model, set, wish), checkup.stack);
    const std::string why = refused;
    const int64_t most = std::max(kMostRepeats, 2 * wish.repeats);
    std::optional<BoundModel> best;
    std::vector<Deed> lacking;
    int64_t repeats = wish.repeats;
    for (std::string before; wish.repeats <= most; ++wish.repeats) {
      BoundModel copy = shrunken(model, set, wish);
      const std::string size = describe(copy);
      if (size == before) break;  // it has as many blocks as the model
      before = size;
      std::optional<Coverage> shown = coverage(copy, checkup.stack);
      if (!shown) continue;
      if (!whole) {
        // The copy may accept what the model refuses; the report must not promise anything for the
        // model then.
        checkup.unseen.push_back("anything: the model itself refuses the stack (" + why + ")");
        return copy;
      }
      if (!best) {
        Stack told = told_for_small(checkup.stack, *whole, *shown);
        if (auto more = coverage(copy, told)) {
          checkup.stack = std::move(told);
          shown = std::move(more);
        }
      }
      std::vector<Deed> gaps = missing(*whole, *shown);
      if (!best || gaps.size() < lacking.size()) {
        best = std::move(copy), lacking = std::move(gaps), repeats = wish.repeats;
      }
      if (lacking.empty()) break;
    }
    wish.repeats = std::min(wish.repeats, most);
    if (!best) return shrunken(model, set, wish);
    wish.repeats = repeats;
    for (const Unseen& unseen : describe(*whole, lacking)) checkup.unseen.push_back(unseen.what);
    return *std::move(best);
  }
};

// How many values the inputs of whole numbers have, by path.
std::map<std::string, int64_t> ids_below(const Scheme& forward) {
  std::map<std::string, int64_t> below;
  for (const auto& [path, range] : input_ranges(forward)) {
    if (range.below) below[path] = *range.below;
  }
  return below;
}

// Where a step does something else from some position, sample, id or count of steps on.
std::vector<Reach> reaches(const Scheme& forward, const Stack& stack, const StepOptions& step) {
  try {
    return reaches_of(said_step(forward, stack, step), ids_below(forward));
  } catch (const Error&) {  // the stack is refused, which is reported when it is judged
    return {};
  }
}

std::map<std::string, std::vector<int64_t>> marks_of(const std::vector<Reach>& all) {
  std::map<std::string, std::set<int64_t>> marks;
  for (const Reach& reach : all) {
    if (reach.of == Reach::Of::kIds) marks[reach.along].insert({reach.at - 1, reach.at});
  }
  std::map<std::string, std::vector<int64_t>> lists;
  for (const auto& [path, values] : marks) lists[path] = {values.begin(), values.end()};
  return lists;
}

// What the far copies must have for what the others lack.
struct FarWish {
  int64_t context = 0, batch = 0, vocab = 0;
  std::map<std::string, std::set<int64_t, std::greater<>>> steps = {};  // by count
  bool empty() const { return context == 0 && batch == 0 && vocab == 0 && steps.empty(); }
};
FarWish far_wish(const std::vector<Reach>& missing) {
  FarWish wish;
  for (const Reach& reach : missing) {
    if (reach.of == Reach::Of::kPositions && reach.at + kBehind <= kMostContext) {
      wish.context = std::max(wish.context, reach.at + kBehind);
    } else if (reach.of == Reach::Of::kSamples && reach.at + kFirstBatch <= kMostBatch) {
      wish.batch = std::max(wish.batch, reach.at + kFirstBatch);
    } else if (reach.of == Reach::Of::kIds && reach.at + 2 <= kMostVocab) {
      wish.vocab = std::max(wish.vocab, reach.at + 2);
    } else if (reach.of == Reach::Of::kSteps) {
      wish.steps[reach.along].insert(reach.at);
    }
  }
  return wish;
}

class Verifier {
 public:
  Verifier(const std::vector<Subject>& subjects, const Stack& stack, const Told& told)
      : subjects_(subjects), stack_(stack), told_(told) {
    report_.law = law_of(stack);
    report_.against = against(stack);
    for (const Subject& s : subjects) report_.sizes.push_back(s.what);
    // The functors that the user named come first.
    for (const bool by_default : {false, true}) {
      for (size_t i = 0; i < stack.functors.size(); ++i) {
        const StackedFunctor& f = stack.functors[i];
        if (f.by_default != by_default || is_idle(f, subjects.front().target)) continue;
        order_.push_back(i);
      }
    }
  }

  Report run() {
    for (const Subject& subject : subjects_) {
      Judge judge(subject);
      if (!accepted(judge)) return std::move(report_);
      for (size_t k = 0; k < order_.size(); ++k) hear(judge, k);
      measure_whole(judge);
    }
    return std::move(report_);
  }

 private:
  bool accepted(Judge& judge) {
    try {
      judge.built(stack_);
      return true;
    } catch (const std::exception& e) {
      report_.ok = false, report_.refused = true;
      report_.reason = blamed(judge.subject(), stack_, e.what());
      return false;
    }
  }

  void hear(Judge& judge, size_t k) {
    const Verdict verdict = judge.judge(stack_, order_[k]);
    if (!verdict.ok && report_.ok) explain(judge, k, verdict);
    if (report_.functors.size() <= k) {
      report_.functors.push_back(verdict);
    } else {
      Verdict& earlier = report_.functors[k];
      std::optional<Moved> moved = verdict.moved ? verdict.moved : earlier.moved;
      if (moved && earlier.moved) raise(*moved, *earlier.moved);
      const int64_t matches = earlier.matches;  // in the copy in which everything acts
      Verdict both = is_worse(verdict, earlier) ? verdict : earlier;
      both.moved = moved, both.matches = matches;
      for (const Verdict* const each : {static_cast<const Verdict*>(&earlier), &verdict}) {
        both.judged.insert(each->judged.begin(), each->judged.end());
        both.too_noisy.insert(each->too_noisy.begin(), each->too_noisy.end());
        both.narrow = both.narrow || each->narrow;
      }
      forget_judged(both);
      earlier = std::move(both);
    }
    judge.forget_all_but(stack_);
    ++done_;
    const auto all = static_cast<int64_t>(subjects_.size() * (order_.size() + 1));
    if (told_) told_(done_, all, verdict.functor);
  }

  // Finds the smallest part of the stack that is still broken, and in it the functor and the
  // object.
  void explain(Judge& judge, size_t k, const Verdict& verdict) {
    report_.ok = false;
    Stack smallest = stack_;
    size_t index = order_[k];
    Verdict broken = verdict;
    for (size_t i = smallest.functors.size(); i-- > 0;) {
      if (i == index) continue;
      const Stack tried = without(smallest, i);
      const size_t at = index - (i < index);
      try {
        const Verdict still = judge.judge(tried, at);
        if (still.ok || still.law != verdict.law) continue;
        broken = still;
      } catch (const Error&) {  // the others need this one
        continue;
      }
      smallest = tried;
      index = at;
    }
    report_.smallest = print(smallest);
    const auto node = judge.first_wrong(smallest, index, broken);
    const std::string where =
        node ? fmt::format("first at {} (op {}): relative error {:.2g}", node->source, node->op,
                           node->error)
             : fmt::format("at {}: relative error {:.2g}", broken.tensor, broken.error);
    report_.reason = fmt::format("law of {} broken: {}, {}", broken.functor, where,
                                 broken.law == Law::kExact
                                     ? "where the same bits were promised"
                                     : fmt::format("which leaves {} off by {:.2g} where {:.2g} is "
                                                   "allowed",
                                                   broken.tensor, broken.error, broken.allowed));
    if (judge.subject().evaluation) report_.reason += ", when it is evaluated";
  }

  void measure_whole(Judge& judge) {
    ++done_;
    if (judge.subject().evaluation) return;
    report_.max_error = std::max(report_.max_error, judge.largest_error(stack_));
    report_.plain_error = std::max(report_.plain_error, judge.largest_error(parse_stack("")));
    if (report_.law == Law::kApproximating) {
      if (!report_.moved) report_.moved.emplace();
      raise(*report_.moved, judge.moved_by(stack_));
    }
  }

  const std::vector<Subject>& subjects_;
  const Stack& stack_;
  const Told& told_;
  std::vector<size_t> order_;
  Report report_;
  int64_t done_ = 0;
};

// A copy that everything acts in. Where the model takes the stack and a copy of few positions
// cannot be, or refuses it (`shift(x, 16)`, a prompt of 16), there are more of them.
BoundModel grown_copy(const Grower& grower, ShrinkWish& wish, Checkup& checkup) {
  const int64_t most = std::min(grower.model.context(), kMostContext);
  const ShrinkWish first = wish;
  const Checkup before = checkup;
  while (true) {
    try {
      BoundModel copy = grower.grow(wish, checkup);
      if (wish.context >= most || !is_refused(copy.forward(), checkup.stack, grower.step) ||
          is_refused(grower.model.forward(), checkup.stack, grower.step)) {
        return copy;
      }
    } catch (const Error&) {
      if (wish.context >= most) throw;
    }
    const int64_t context = std::min(most, 2 * wish.context);
    wish = first, checkup = before;
    wish.context = context;
  }
}

// What a far copy is made of: what the model does from some place on (`all`), and the wish that the
// narrow copy was made by.
struct Far {
  const BoundModel& model;
  const VerifyOptions& options;
  const StepOptions& step;
  const std::vector<Reach>& all;
  const ShrinkWish& wish;
};

std::optional<BoundModel> far_copy(const Far& far, const ShrinkWish& wish, const Stack& stack) {
  try {
    BoundModel copy = shrunken(far.model, far.options.sizes.settings, wish);
    if (is_refused(copy.forward(), stack, far.step)) return std::nullopt;
    return copy;
  } catch (const Error&) {  // no size fits
    return std::nullopt;
  }
}

// The copies that show what the others are too short for; what none of them shows is unseen.
void add_far(const Far& far, Checkup& checkup) {
  const auto lacking = [&] {
    std::vector<Reach> seen;
    for (const Subject& subject : checkup.subjects) {
      const std::vector<Reach> more = reaches(subject.forward, checkup.stack, far.step);
      for (const Reach& reach : more) {
        // A count of steps is as far as the run begins; what is behind 0 and 1 is far.
        const auto counted = subject.counted.find(reach.along);
        const double last =
            (counted == subject.counted.end() ? 0 : counted->second) + subject.steps;
        if (reach.of != Reach::Of::kSteps || static_cast<double>(reach.at) < last) {
          seen.push_back(reach);
        }
      }
    }
    return beyond(far.all, seen);
  };
  std::vector<Reach> missing = lacking();
  const FarWish needed = far_wish(missing);
  if (!needed.empty()) {
    ShrinkWish wish = far.wish;
    if (needed.context > 0) wish.context = std::max(wish.context, needed.context);
    if (needed.vocab > 0) wish.vocab = std::max(wish.vocab, needed.vocab);
    std::vector<int64_t> batches = {kFirstBatch, far.wish.batch};
    if (needed.batch > 0) batches = {std::max(needed.batch, far.wish.batch)};
    size_t counts = 1;
    for (const auto& [count, steps] : needed.steps) counts = std::max(counts, steps.size());
    for (const int64_t batch : batches) {
      wish.batch = batch;
      const std::optional<BoundModel> copy = far_copy(far, wish, checkup.stack);
      if (!copy) continue;
      Subject subject{.forward = copy->forward(),
                      .options = far.step,
                      .seeds = {1},
                      .steps = 1,
                      .what = describe(*copy),
                      .target = far.options.target,
                      .marks = marks_of(far.all)};
      for (size_t k = 0; k < std::min<size_t>(counts, kMostCounts); ++k) {
        Subject behind = subject;
        // What a count of steps changes may be read by the next step alone.
        if (!needed.steps.empty()) behind.steps = kSteps;
        for (const auto& [count, steps] : needed.steps) {
          auto at = steps.begin();
          std::advance(at, std::min(k, steps.size() - 1));
          behind.counted[count] = static_cast<double>(*at);
          behind.what += fmt::format(", from step {} of {} on", *at, count);
        }
        checkup.subjects.push_back(std::move(behind));
      }
      break;
    }
    missing = lacking();
  }
  for (const Reach& reach : missing) checkup.unseen.push_back(in_words(reach));
}

}  // namespace

Report verify_stack(const std::vector<Subject>& subjects, const Stack& stack, const Told& told) {
  return Verifier(subjects, stack, told).run();
}

Checkup checkup_for(const ModelText& text, const Stack& stack, const VerifyOptions& options) {
  StepOptions step = options.step;
  step.eps = std::max(step.eps, kSmoothEps);
  step.target = options.target;
  step.deterministic = true;  // as it is run (compare.cpp)
  step.on_mesh = true;
  std::vector<uint64_t> seeds;
  for (int64_t i = 1; i <= options.seeds; ++i) seeds.push_back(static_cast<uint64_t>(i));

  ModelSizes sizes = options.sizes;
  const std::vector<MeshAxis> mesh = mesh_of(text, sizes, stack, step);
  if (sizes.batch <= 0) {
    sizes.batch = kBatch;
    for (const int64_t batch : batches_to_try(stack, num_ranks(mesh))) {
      sizes.batch = batch;
      if (!is_refused(BoundModel(text, sizes).forward(), stack, step)) break;
    }
  }
  const int64_t batch = sizes.batch;
  const BoundModel model(text, sizes);
  Checkup checkup{.stack = stack};
  // Of the model, with more samples than any copy has unless the user said how many.
  const std::vector<Reach> all = [&] {
    const int64_t samples = options.sizes.batch > 0 ? batch : std::max(batch, kEvenBatch);
    return reaches(model.forward(samples, model.context()), stack, step);
  }();
  const auto add = [&](const BoundModel& bound, int steps) {
    checkup.subjects.push_back({.forward = bound.forward(),
                                .options = step,
                                .seeds = seeds,
                                .steps = steps,
                                .what = describe(bound),
                                .target = options.target,
                                .marks = marks_of(all)});
  };
  // The forward pass of a step already shows most mistakes of an evaluation, so one size and one
  // batch are enough.
  const auto add_evaluation = [&] {
    Subject evaluated = checkup.subjects.front();
    evaluated.evaluation = true;
    evaluated.steps = 1;
    evaluated.what += ", evaluated";
    checkup.subjects.push_back(std::move(evaluated));
  };
  if (options.full) {
    add(model, kSteps);
    add_evaluation();
    return checkup;
  }
  ShrinkWish wish{.width = kWidths[0], .batch = batch, .ranks = ranks_to_keep(mesh)};
  wish.said = scaled_reaches(model, options.sizes.settings);
  wish.repeats = std::max(kRepeats, 2 * largest_argument(stack, {"every"}));
  if (options.sizes.context > 0) wish.context = options.sizes.context;
  const int64_t few = wish.repeats;
  const Grower grower{.model = model, .set = options.sizes.settings, .step = step};
  const BoundModel narrow = grown_copy(grower, wish, checkup);
  for (std::string& told : divided_otherwise(model, narrow, wish.ranks)) {
    checkup.unseen.push_back(std::move(told));
  }
  add(narrow, kSteps);
  const int64_t grown = std::exchange(wish.repeats, few);
  // Everything acts in the narrow copy. The wide one tests kernels, which use other paths for large
  // tensors; it is short, because wide models are slow in float64, and takes one step, because the
  // narrow copy covers what is carried from step to step.
  wish.width = kWidths[1];
  const BoundModel wide = shrunken(model, options.sizes.settings, wish);
  if (grown == few || !is_refused(wide.forward(), checkup.stack, step)) {
    add(wide, 1);
  } else {
    wish.repeats = grown;
    add(shrunken(model, options.sizes.settings, wish), 1);
  }
  wish.width = kWidths[0], wish.repeats = grown;
  add_far({.model = model, .options = options, .step = step, .all = all, .wish = wish}, checkup);
  add_evaluation();
  return checkup;
}

std::vector<Subject> subjects_for(const ModelText& text, const Stack& stack,
                                  const VerifyOptions& options) {
  return checkup_for(text, stack, options).subjects;
}

Report verify_model(const ModelText& text, const Stack& stack, const VerifyOptions& options,
                    const Told& told) {
  Checkup checkup = checkup_for(text, stack, options);
  Report report = verify_stack(checkup.subjects, checkup.stack, told);
  report.unseen = std::move(checkup.unseen);
  if (report.refused) return report;
  const BoundModel model(
      text, {.batch = 1, .context = options.sizes.context, .settings = options.sizes.settings});
  if (auto doubt = doubt_about_later_tokens(model, options.sizes.settings, stack, options.step)) {
    report.doubts.push_back(*std::move(doubt));
  }
  return report;
}

}  // namespace adjoint
