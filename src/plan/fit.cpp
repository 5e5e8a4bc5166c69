#include "plan/fit.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "plan/blocks.h"

namespace adjoint {

namespace {

constexpr int kTries = 12;        // of a solver's budget, until the real plan fits
constexpr int kLocalMoves = 80;   // of a local search
constexpr size_t kMostParts = 8;  // numbers of parts that are looked at
constexpr double kMargin = 0.03;  // recomputing may even save time: a lower bound is this uncertain
// How much of the seconds between tiers the solver counts: all, or as if they were hidden.
constexpr double kHidden[] = {1, 0.05};

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : a + " | " + b;
}

bool names(const Stack& stack, std::string_view functor) {
  return std::any_of(stack.functors.begin(), stack.functors.end(), [&](const StackedFunctor& f) {
    return !f.by_default && f.functor.name == functor;
  });
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  if (all.size() <= kMostParts) return all;
  std::vector<int64_t> some;
  for (size_t k = 0; k < kMostParts; ++k) {
    some.push_back(all[k * (all.size() - 1) / (kMostParts - 1)]);
  }
  return some;
}

}  // namespace

struct Fit::Search {
  // A stack without residences, and what can be chosen of them.
  struct Variant {
    std::string stack;
    FitPoint given = {}, plain = {};
    std::optional<TimedStep> plain_step = {};
    std::unique_ptr<Blocks> blocks = nullptr;
    std::vector<ChainProblem> problems = {};  // one per way to count copies
  };

  Search(Scheme model, FitOptions with) : forward(std::move(model)), options(std::move(with)) {
    const Stack stack = parse_stack(options.step.stack);
    given = *look_at(options.step.stack, nullptr, true);
    std::vector<std::string> parts = {""}, precisions = {""}, tiers = {""};
    if (!names(stack, "accumulate")) {
      for (const int64_t n : divisors(options.batch)) {
        if (n > 1) parts.push_back("accumulate(" + std::to_string(n) + ")");
      }
    }
    const bool precision = names(stack, "bf16") || names(stack, "fp16") || names(stack, "tf32");
    if (options.may_approximate && !precision) precisions.push_back("bf16");
    if (options.costs.sheet.link > 0 && !names(stack, "offload")) {
      tiers.insert(tiers.end(), {"offload(optimizer)", "offload(optimizer) | offload(parameters)"});
    }
    for (const std::string& precision_part : precisions) {
      for (const std::string& tier : tiers) {
        for (const std::string& part : parts) {
          add_variant(joined(options.step.stack, joined(precision_part, joined(part, tier))));
        }
      }
    }
    if (variants.empty()) fail("no stack beside '", options.step.stack, "' is legal");
    std::stable_sort(variants.begin(), variants.end(), [](const Variant& a, const Variant& b) {
      return lower_bound(a) < lower_bound(b);
    });
  }

  static double lower_bound(const Variant& v) {
    return std::min(v.plain.seconds, v.given.seconds) * (1 - kMargin);
  }

  void say(const std::string& what) const {
    if (options.say) options.say(what);
  }

  TimedStep build(const std::string& stack) {
    StepOptions step = options.step;
    step.stack = stack;
    TimedStep built;
    built.scheme = build_step(forward, parse_stack(stack), step).scheme;
    built.plan = make_plan(built.scheme, options.plan);
    built.time = predict_time(built.scheme, built.plan, options.costs);
    return built;
  }

  // Nothing where the stack is refused, unless that is the user's own.
  std::optional<FitPoint> look_at(const std::string& stack,
                                  std::optional<TimedStep>* keep = nullptr, bool own = false) {
    const auto known = looked.find(stack);
    if (known != looked.end() && !keep) return known->second;
    try {
      say(stack);
      TimedStep built = build(stack);
      FitPoint point{.stack = stack,
                     .peak = built.plan.arena,
                     .host = built.plan.host.size,
                     .seconds = built.time.step,
                     .flops = built.time.flops,
                     .recomputed_flops = built.time.recomputed_flops};
      looked[stack] = point;
      if (keep) *keep = std::move(built);
      return point;
    } catch (const Error&) {
      if (own) throw;
      looked[stack] = std::nullopt;
      return std::nullopt;
    }
  }

  // Everything kept, of this stack.
  std::string plain_stack(const std::string& stack) const {
    const Stack parsed = parse_stack(stack);
    const bool off = std::count(parsed.off.begin(), parsed.off.end(), "recompute_cheap") > 0;
    return off ? stack : joined(stack, "-recompute_cheap");
  }

  void add_variant(const std::string& stack) {
    Variant v{.stack = stack};
    const auto as_given = look_at(stack);
    if (!as_given) return;
    v.given = *as_given;
    v.plain = look_at(plain_stack(stack), &v.plain_step).value_or(v.given);
    variants.push_back(std::move(v));
  }

  void prepare(Variant& v) {
    if (v.blocks) return;
    StepOptions step = options.step;
    v.blocks = std::make_unique<Blocks>(said_step(forward, parse_stack(plain_stack(v.stack)), step),
                                        options.costs);
    if (!v.blocks->can_choose() || !v.plain_step) return;
    std::map<std::string, TimedStep> built;
    const auto once = [&](const std::string& residences) {
      auto found = built.find(residences);
      if (found == built.end()) {
        say(joined(v.stack, residences));
        found = built.emplace(residences, build(joined(v.stack, residences))).first;
      }
      return found->second;
    };
    for (const double hidden : kHidden) {
      v.problems.push_back(v.blocks->measure(once, *v.plain_step, hidden));
      if (options.costs.sheet.link <= 0) break;
    }
  }

  // The chain's choices: the solver's budget goes down until what it chose really fits, and up
  // while what it chose leaves room.
  void solve_chain(Variant& v, const ChainProblem& problem, Bytes budget) {
    int64_t goal = budget.count;
    int64_t above = 0;  // a goal whose choice did not fit
    for (int tries = 0; tries < kTries; ++tries) {
      const auto choice = solve(problem, goal);
      if (!choice) {
        if (above == 0) return;
        break;
      }
      const auto point = look_at(joined(v.stack, v.blocks->print(*choice)));
      if (!point) return;
      note(*point);
      const int64_t excess = point->peak.count - budget.count;
      if (excess > 0) {
        above = goal;
        goal = std::min(goal - 1, choice->peak - excess);
        continue;
      }
      // The next choice begins above this one's own peak; the slack says how far it may be.
      const int64_t next = std::max(choice->peak - excess, goal + 1);
      if (above > 0 || -excess < budget.count / 400 || next <= goal) return;
      goal = next;
    }
  }

  // Without a chain: what is alive at the peak is recomputed, most bytes per second first, until it
  // fits; then whatever still may is kept again.
  void solve_locally(Variant& v, Bytes budget) {
    std::vector<std::string> again;
    const auto stack_of = [&](const std::vector<std::string>& list) {
      if (list.empty()) return v.stack;
      std::vector<std::string> quoted;
      for (const std::string& name : list) quoted.push_back("\"" + name + "\"");
      return joined(v.stack, "reside(again=[" + join(quoted, ", ") + "])");
    };
    std::set<std::string> tried;
    std::optional<TimedStep> step;
    auto point = look_at(v.stack, &step);
    for (int move = 0; move < kLocalMoves && point && point->peak > budget; ++move) {
      const auto worst = largest_at_peak(*step, tried);
      if (worst.empty()) break;
      tried.insert(worst);
      std::vector<std::string> more = again;
      more.push_back(worst);
      std::optional<TimedStep> next;
      const auto better = look_at(stack_of(more), &next);
      if (!better || better->peak >= point->peak) continue;
      again = more, point = better, step = std::move(next);
    }
    if (!point) return;
    note(*point);
    for (size_t k = 0; k < again.size() && point->peak <= budget;) {
      std::vector<std::string> less = again;
      less.erase(less.begin() + static_cast<int64_t>(k));
      const auto faster = look_at(stack_of(less));
      if (faster && faster->peak <= budget && faster->seconds <= point->seconds) {
        again = less, point = faster;
        note(*point);
      } else {
        ++k;
      }
    }
  }

  // The kept object of the forward that gives most bytes at the peak for its seconds.
  std::string largest_at_peak(const TimedStep& step, const std::set<std::string>& tried) const {
    const std::vector<int> made_by = producers(step.scheme);
    std::string best;
    double most = 0;
    for (const Storage& s : step.plan.storages) {
      const int peak = step.plan.peak_at;
      if (s.tier != Tier::kDevice || s.first >= peak || s.last < peak || s.objects.empty()) {
        continue;
      }
      const Value v = s.objects[0];
      if (made_by[v] < 0) continue;
      const Morphism& m = step.scheme.morphisms[made_by[v]];
      const OpDef& def = op_named(m.op);
      const bool can = m.phase == Phase::kForward && m.epoch == 0 &&
                       (def.effect == Effect::kPure || def.effect == Effect::kRandom);
      const std::string name = to_string(step.scheme[v].source);
      if (!can || tried.count(name)) continue;
      const double seconds = options.costs.seconds(step.scheme, m);
      const double worth = static_cast<double>(s.size.count) / std::max(seconds, 1e-9);
      if (worth > most) most = worth, best = name;
    }
    return best;
  }

  void note(const FitPoint& point) { considered.push_back(point); }

  std::optional<FitPoint> fastest(Bytes budget) const {
    std::optional<FitPoint> best;
    for (const FitPoint& p : considered) {
      if (p.peak > budget) continue;
      const bool better =
          !best || p.seconds < best->seconds || (p.seconds == best->seconds && p.peak < best->peak);
      if (better) best = p;
    }
    return best;
  }

  std::optional<FitPoint> best(Bytes budget) {
    considered.clear();
    for (Variant& v : variants) {
      note(v.given);
      note(v.plain);
    }
    for (Variant& v : variants) {
      const auto so_far = fastest(budget);
      if (so_far && so_far->seconds <= lower_bound(v)) break;  // and so are the rest
      prepare(v);
      for (const ChainProblem& problem : v.problems) solve_chain(v, problem, budget);
      if (v.problems.empty() && v.blocks && !v.blocks->can_choose()) solve_locally(v, budget);
      for (const std::string& named : extremes(v)) {
        if (const auto point = look_at(named)) note(*point);
      }
    }
    return fastest(budget);
  }

  // Hand-made ends of the scale, which the solver's options do not reach.
  std::vector<std::string> extremes(const Variant& v) const {
    if (!v.blocks || !v.blocks->can_choose()) return {};
    return {joined(v.stack, "checkpoint(all)")};
  }

  FitPoint smallest() {
    Variant* least = nullptr;
    FitPoint point = given;
    const auto take = [&](const std::optional<FitPoint>& p, Variant* v) {
      if (!p || p->peak >= point.peak) return;
      point = *p;
      if (v) least = v;
    };
    for (Variant& v : variants) {
      for (const char* extreme : {"", "checkpoint(block)", "checkpoint(sqrt)", "checkpoint(all)"}) {
        take(look_at(joined(v.stack, extreme)), &v);
      }
    }
    if (!least) least = &variants[0];
    prepare(*least);
    for (const ChainProblem& problem : least->problems) {
      if (const auto choice = solve(problem, smallest_budget(problem))) {
        take(look_at(joined(least->stack, least->blocks->print(*choice))), nullptr);
      }
    }
    if (least->problems.empty()) {
      considered.clear();
      solve_locally(*least, {0});
      for (const FitPoint& p : considered) take(p, nullptr);
    }
    return point;
  }

  Scheme forward;
  FitOptions options;
  FitPoint given;
  std::vector<Variant> variants;
  std::map<std::string, std::optional<FitPoint>> looked;
  std::vector<FitPoint> considered;
};

Fit::Fit(Scheme forward, FitOptions options)
    : search_(std::make_unique<Search>(std::move(forward), std::move(options))) {}
Fit::~Fit() = default;

std::optional<FitPoint> Fit::best(Bytes budget) { return search_->best(budget); }
const FitPoint& Fit::given() { return search_->given; }
const FitPoint& Fit::plain() {
  const auto at = std::find_if(
      search_->variants.begin(), search_->variants.end(),
      [&](const Search::Variant& v) { return v.stack == search_->options.step.stack; });
  return at == search_->variants.end() ? search_->given : at->plain;
}
FitPoint Fit::smallest() { return search_->smallest(); }
const std::vector<FitPoint>& Fit::considered() const { return search_->considered; }

std::vector<FitPoint> Fit::pareto(int points) {
  const Bytes low = smallest().peak, high = std::max(plain().peak, given().peak);
  std::vector<FitPoint> found = {smallest()};
  for (int k = 0; k <= points; ++k) {
    const double share = static_cast<double>(k) / points;
    const auto budget = static_cast<int64_t>(
        std::exp(std::log(double(low.count)) * (1 - share) + std::log(double(high.count)) * share));
    if (const auto point = best({budget})) found.push_back(*point);
  }
  if (const auto point = best(high)) found.push_back(*point);
  std::stable_sort(found.begin(), found.end(), [](const FitPoint& a, const FitPoint& b) {
    return a.peak != b.peak ? a.peak < b.peak : a.seconds < b.seconds;
  });
  std::vector<FitPoint> curve;
  for (const FitPoint& p : found) {
    if (curve.empty() || p.seconds < curve.back().seconds) curve.push_back(p);
  }
  return curve;
}

}  // namespace adjoint
