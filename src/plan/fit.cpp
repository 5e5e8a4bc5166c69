#include "plan/fit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "plan/blocks.h"
#include "plan/local_search.h"

namespace adjoint {

namespace {

constexpr int kTries = 16;         // of a solver's goal, downwards until the real plan fits
constexpr int kTriesUp = 4;        // and upwards before
constexpr int kHalvings = 4;       // of the last step down
constexpr double kGrid = 1.002;    // between goals on the way down
constexpr double kCoarse = 1.02;   // between goals below a budget that are looked at anyway,
constexpr int kBelow = 3;          // so many
constexpr double kNear = 1.015;    // the smallest is looked for up to this times the solver's
constexpr size_t kMostParts = 8;   // numbers of parts that are looked at
constexpr double kMargin = 0.002;  // by which a lower bound is uncertain
constexpr const char* kByHand[] = {"checkpoint(block)", "checkpoint(sqrt)", "checkpoint(all)"};
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

// The largest of all budgets' goals that is at most this.
int64_t on_grid(int64_t bytes, double grid = kGrid) {
  if (bytes < 1) return 0;
  const double step = std::floor(std::log(static_cast<double>(bytes)) / std::log(grid));
  return std::min(bytes, static_cast<int64_t>(std::pow(grid, step)));
}

// Runs body(i) for all i on all cores; building and planning share nothing.
template <class Body>
void in_parallel(size_t count, const Body& body) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failed(count);
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (size_t t = 1; t < std::min(cores, count); ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& e : failed) {
    if (e) std::rethrow_exception(e);
  }
}

bool is_off(const std::string& stack, std::string_view functor) {
  const std::vector<std::string> off = parse_stack(stack).off;
  return std::find(off.begin(), off.end(), functor) != off.end();
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
  // What the chain of a stack poses; one per way to count copies.
  struct Posed {
    std::string stack;  // that residences are said beside
    ChainProblem problem;
  };
  // A stack without residences, and what can be chosen of them.
  struct Variant {
    std::string stack;
    FitPoint given = {}, plain = {};
    std::optional<TimedStep> plain_step = {};
    std::unique_ptr<Blocks> blocks = nullptr;
    std::vector<Posed> problems = {};
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
      return plain_seconds(a) < plain_seconds(b);
    });
  }

  static double plain_seconds(const Variant& v) {
    return std::min(v.plain.seconds, v.given.seconds);
  }

  // Recomputing may even save a little time: what the fastest variant could save at most, any may.
  double lower_bound(const Variant& v) {
    if (!margin) {
      Variant& first = variants[0];
      prepare(first);
      double saved = 0;
      for (const Posed& posed : first.problems) {
        for (const BlockOption& o : posed.problem.options) {
          saved = std::max(saved, -o.cost * posed.problem.blocks);
        }
      }
      margin = kMargin + saved / plain_seconds(first);
    }
    return plain_seconds(v) * (1 - *margin);
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

  // Seconds to the picosecond: the same calls in another order take the same time. Where there is
  // one memory, what the next tier holds is in it, too.
  FitPoint point_of(const std::string& stack, const TimedStep& built) const {
    const bool one = options.costs.sheet.link <= 0;
    return {.stack = stack,
            .peak = one ? built.plan.arena + built.plan.host.size : built.plan.arena,
            .host = built.plan.host.size,
            .seconds = std::round(built.time.step * 1e12) / 1e12,
            .flops = built.time.flops,
            .recomputed_flops = built.time.recomputed_flops};
  }

  // Nothing where the stack is refused, unless that is the user's own.
  std::optional<FitPoint> look_at(const std::string& stack,
                                  std::optional<TimedStep>* keep = nullptr, bool own = false) {
    const auto known = looked.find(stack);
    if (known != looked.end() && !keep) return known->second;
    try {
      say(stack);
      TimedStep built = build(stack);
      const auto point = looked[stack] = point_of(stack, built);
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
    return is_off(stack, "recompute_cheap") ? stack : joined(stack, "-recompute_cheap");
  }

  void add_variant(const std::string& stack) {
    Variant v{.stack = stack};
    const auto as_given = look_at(stack);
    if (!as_given) return;
    v.given = *as_given;
    v.plain = look_at(plain_stack(stack), &v.plain_step).value_or(v.given);
    // Whole logits, where there is room for them and they save time.
    if (!is_off(stack, "chunk_readout")) look_at(joined(plain_stack(stack), "-chunk_readout"));
    variants.push_back(std::move(v));
  }

  // The stack as it was given.
  Variant* own_variant() {
    for (Variant& v : variants) {
      if (v.stack == options.step.stack) return &v;
    }
    return nullptr;
  }

  void prepare(Variant& v) {
    if (v.blocks) return;
    StepOptions step = options.step;
    v.blocks = std::make_unique<Blocks>(said_step(forward, parse_stack(plain_stack(v.stack)), step),
                                        options.costs);
    if (!v.blocks->can_choose() || !v.plain_step) return;
    pose(v, v.stack);
    // What recompute_cheap does inside recomputed segments saves bytes for a second recomputation:
    // neither way is always better.
    if (plain_stack(v.stack) != v.stack) pose(v, plain_stack(v.stack));
  }

  // Every option is planned, as many at once as there are cores.
  void pose(Variant& v, const std::string& base) {
    std::map<std::string, std::optional<TimedStep>> built;
    for (int o = 0; o < v.blocks->num_options(); ++o) {
      built[v.blocks->print(v.blocks->uniform(o))];
    }
    std::vector<std::pair<const std::string, std::optional<TimedStep>>*> waiting;
    for (auto& entry : built) waiting.push_back(&entry);
    in_parallel(waiting.size(),
                [&](size_t i) { waiting[i]->second = build(joined(base, waiting[i]->first)); });
    for (const auto& [residences, step] : built) {
      const std::string stack = joined(base, residences);
      say(stack);
      looked[stack] = point_of(stack, *step);
    }
    const auto known = [&](const std::string& residences) -> const TimedStep& {
      return *built.at(residences);
    };
    for (const double hidden : kHidden) {
      v.problems.push_back({base, v.blocks->measure(known, *v.plain_step, hidden)});
      if (options.costs.sheet.link <= 0) break;
    }
  }

  // What the solver chooses for a goal, built and planned; nothing where there is no choice.
  struct Tried {
    FitPoint point;
    int64_t model_peak;  // what the solver takes its bytes to be
  };
  std::optional<Tried> choose(const Variant& v, const Posed& posed, int64_t goal) {
    const auto choice = solve(posed.problem, goal);
    if (!choice) return std::nullopt;
    const auto point = look_at(joined(posed.stack, v.blocks->print(*choice)));
    if (!point) return std::nullopt;
    note(*point);
    return Tried{*point, choice->peak};
  }

  // The chain's choices. What the solver takes for bytes is close, but packing adds to it: so its
  // goal goes up while what it chose leaves room, and then down until what it chose really fits.
  // Down it goes by steps of one grid, whatever the budget, so that a larger budget meets all that
  // a smaller one would take, and what is faster before it.
  void solve_chain(const Variant& v, const Posed& posed, Bytes budget) {
    int64_t goal = budget.count, fits = 0;
    auto tried = choose(v, posed, goal);
    for (int up = 0; up < kTriesUp && tried && tried->point.peak <= budget; ++up) {
      fits = goal;
      const int64_t room = budget.count - tried->point.peak.count;
      if (room < budget.count / 400) return;
      goal = std::max(tried->model_peak + room, goal + 1);
      tried = choose(v, posed, goal);
    }
    int64_t above = goal;
    for (int down = 0; down < kTries && tried && tried->point.peak > budget; ++down) {
      const int64_t excess = down < kTries / 2 ? 1 : tried->point.peak.count - budget.count;
      above = goal;
      goal = on_grid(goal - excess);
      if (goal <= fits) break;
      tried = choose(v, posed, goal);
    }
    // Between two steps of the grid.
    int64_t below = std::max(goal, fits);
    for (int half = 0; half < kHalvings && above - below > 1; ++half) {
      const int64_t middle = below + (above - below) / 2;
      const auto between = choose(v, posed, middle);
      (between && between->point.peak <= budget ? below : above) = middle;
    }
  }

  // A block's seconds depend a little on its neighbours' choices, which the solver does not know: a
  // choice for fewer bytes may be faster. Those of one grid are looked at, whatever the budget.
  void look_below(const Variant& v, const Posed& posed, Bytes budget) {
    int64_t goal = budget.count;
    for (int step = 0; step < kBelow; ++step) {
      goal = on_grid(goal - 1, kCoarse);
      if (!choose(v, posed, goal)) return;
    }
  }

  // Without a chain: sets of names, from nothing on.
  void solve_locally(const Variant& v, Bytes budget) {
    const auto stack_of = [&](const Names& again) {
      if (again.empty()) return v.stack;
      std::vector<std::string> quoted;
      for (const std::string& name : again) quoted.push_back("\"" + name + "\"");
      return joined(v.stack, "reside(again=[" + join(quoted, ", ") + "])");
    };
    LocalProblem problem;
    problem.look = [&](const Names& again) -> std::optional<LocalProblem::Judged> {
      const auto point = look_at(stack_of(again));
      if (!point) return std::nullopt;
      note(*point);
      return LocalProblem::Judged{point->peak, point->seconds};
    };
    problem.at_peak = [&](const Names& again) { return alive_at_peak(build(stack_of(again))); };
    search_locally(problem, budget);
  }

  // Objects of the forward that are alive at the peak and can be made again, most bytes for their
  // seconds first.
  std::vector<std::string> alive_at_peak(const TimedStep& step) const {
    const std::vector<int> made_by = producers(step.scheme);
    std::vector<std::pair<double, std::string>> found;
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
      if (!can) continue;
      const double seconds = options.costs.seconds(step.scheme, m);
      found.emplace_back(static_cast<double>(s.size.count) / std::max(seconds, 1e-9),
                         to_string(step.scheme[v].source));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> names;
    for (const auto& [worth, name] : found) names.push_back(name);
    return names;
  }

  void note(const FitPoint& point) { considered.push_back(point); }

  std::optional<FitPoint> fastest(Bytes budget) const {
    std::optional<FitPoint> best;
    for (const FitPoint& p : considered) {
      if (p.peak > budget) continue;
      // Of those that are equally fast the simplest.
      const auto worth = [](const FitPoint& q) {
        return std::tuple(q.seconds, q.host, q.stack.size(), q.peak);
      };
      const bool better = !best || worth(p) < worth(*best);
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
      for (const Posed& posed : v.problems) {
        solve_chain(v, posed, budget);
        look_below(v, posed, budget);
      }
      if (v.problems.empty() && v.blocks && !v.blocks->can_choose()) solve_locally(v, budget);
      for (const std::string& named : extremes(v)) {
        if (const auto point = look_at(named)) note(*point);
      }
    }
    note_known();
    if (!fastest(budget)) {
      smallest();
      note_known();
    }
    return fastest(budget);
  }

  // What was ever looked at may be taken: a larger budget is not answered worse than a smaller one
  // was before it.
  void note_known() {
    for (const auto& [stack, point] : looked) {
      if (point) note(*point);
    }
  }

  // What people write by hand; the ends of the scale are beyond the solver's options.
  std::vector<std::string> extremes(const Variant& v) const {
    if (!v.blocks || !v.blocks->can_choose()) return {};
    std::vector<std::string> all;
    for (const char* hand : kByHand) all.push_back(joined(v.stack, hand));
    return all;
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
      take(look_at(v.stack), &v);
      for (const char* hand : kByHand) take(look_at(joined(v.stack, hand)), &v);
    }
    if (!least) least = &variants[0];
    prepare(*least);
    for (const Posed& posed : least->problems) {
      // The fewest bytes by the solver's count are not always the fewest once they are packed.
      const auto goal = static_cast<double>(smallest_budget(posed.problem));
      for (double more = 1; more < kNear; more *= kGrid) {
        const auto tried = choose(*least, posed, static_cast<int64_t>(std::ceil(goal * more)));
        if (tried) take(tried->point, nullptr);
      }
    }
    if (least->problems.empty()) solve_locally(*least, {0});
    note_known();
    for (const FitPoint& p : considered) take(p, nullptr);
    return point;
  }

  Scheme forward;
  FitOptions options;
  FitPoint given;
  std::vector<Variant> variants;
  std::map<std::string, std::optional<FitPoint>> looked;
  std::vector<FitPoint> considered;
  std::optional<double> margin;  // of lower bounds, a share
};

Fit::Fit(Scheme forward, FitOptions options)
    : search_(std::make_unique<Search>(std::move(forward), std::move(options))) {}
Fit::~Fit() = default;

std::optional<FitPoint> Fit::best(Bytes budget) { return search_->best(budget); }
const FitPoint& Fit::given() { return search_->given; }
const FitPoint& Fit::plain() {
  const Search::Variant* own = search_->own_variant();
  return own ? own->plain : search_->given;
}
const ChainProblem* Fit::chain_problem() {
  Search::Variant* own = search_->own_variant();
  if (!own) return nullptr;
  search_->prepare(*own);
  return own->problems.empty() ? nullptr : &own->problems[0].problem;
}
std::string Fit::stack_of(const ChainChoice& choice) {
  CHECK(chain_problem(), "a choice of this chain");
  const Search::Variant* own = search_->own_variant();
  return joined(own->stack, own->blocks->print(choice));
}
FitPoint Fit::smallest() { return search_->smallest(); }
const std::vector<FitPoint>& Fit::considered() const { return search_->considered; }

std::vector<FitPoint> Fit::pareto(int points) {
  const FitPoint least = smallest();
  const Bytes low = least.peak, high = std::max(plain().peak, given().peak);
  std::vector<FitPoint> found = {least};
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
