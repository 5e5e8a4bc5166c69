#include "plan/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "plan/blocks.h"
#include "plan/local_search.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

constexpr int kTries = 16;        // goals for the solver, downwards until the real plan fits
constexpr int kTriesUp = 4;       // and upwards before
constexpr int kFiner = 8;         // goals within the percent that packing may add
constexpr int kHalvings = 4;      // of the last step down
constexpr double kGrid = 1.002;   // between goals on the way down
constexpr double kCoarse = 1.02;  // between goals below a budget that are tried anyway,
constexpr int kBelow = 3;         // so many
constexpr double kNear = 1.015;   // the smallest step is sought up to this times the solver's bytes
constexpr size_t kMostParts = 8;  // numbers of parts that are tried
constexpr int kMostEvery = 8;     // blocks in a segment of a stage
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

// The largest goal on the grid, which all budgets share, that is at most `bytes`.
int64_t on_grid(int64_t bytes, double grid = kGrid) {
  if (bytes < 1) return 0;
  const double step = std::floor(std::log(static_cast<double>(bytes)) / std::log(grid));
  return std::min(bytes, static_cast<int64_t>(std::pow(grid, step)));
}

bool is_off(const std::string& stack, std::string_view functor) {
  const std::vector<std::string> off = parse_stack(stack).off;
  return std::find(off.begin(), off.end(), functor) != off.end();
}

// What blocks could keep does not depend on the stages; what these keep is not to choose.
std::string without_stages(const std::string& text) {
  Stack stack = parse_stack(text);
  std::erase_if(stack.functors, [](const StackedFunctor& f) {
    if (!f.functor.mesh) return false;
    const std::vector<MeshAxis> axes = f.functor.mesh(f.args);
    return std::any_of(axes.begin(), axes.end(),
                       [](const MeshAxis& axis) { return axis.name == kStageAxis; });
  });
  return print(stack);
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
  // A stack's chain as a problem, with one way to count copies.
  struct Posed {
    std::string stack;  // to which chosen residences are added
    ChainProblem problem;
  };
  // A stack without residences, and what can be chosen of them.
  struct Variant {
    std::string stack;
    FitPoint given = {}, plain = {};
    std::optional<TimedStep> plain_step = {};
    std::unique_ptr<Blocks> blocks = nullptr;
    bool posed = false;
    std::vector<Posed> problems = {};
  };

  Search(Scheme model, FitOptions with) : looks(std::move(model), std::move(with)) {
    const TimedStep as_given = looks.build(options.step.stack);
    given = looks.point_of(options.step.stack, as_given);
    staged = !as_given.scheme.schedule.empty();
    add_variants(stacks_beside(parse_stack(options.step.stack)));
    if (variants.empty()) fail("no stack beside '", options.step.stack, "' is legal");
    std::stable_sort(variants.begin(), variants.end(), [](const Variant& a, const Variant& b) {
      return plain_seconds(a) < plain_seconds(b);
    });
  }

  // Numbers of parts, precisions and tiers that are tried beside what was given.
  std::vector<std::string> stacks_beside(const Stack& stack) const {
    std::vector<std::string> parts = {""}, precisions = {""}, tiers = {""}, all;
    if (!names(stack, "accumulate") && !staged) {
      for (const int64_t n : divisors(options.batch)) {
        if (n > 1) parts.push_back("accumulate(" + std::to_string(n) + ")");
      }
    }
    const bool precision = names(stack, "bf16") || names(stack, "fp16") || names(stack, "tf32");
    if (options.may_approximate && !precision) precisions.push_back("bf16");
    if (!options.costs.sheet.one_memory() && !names(stack, "offload")) {
      tiers.insert(tiers.end(), {"offload(optimizer)", "offload(optimizer) | offload(parameters)"});
    }
    for (const std::string& precision_part : precisions) {
      for (const std::string& tier : tiers) {
        for (const std::string& part : parts) {
          all.push_back(joined(options.step.stack, joined(precision_part, joined(part, tier))));
        }
      }
    }
    return all;
  }

  // Builds each stack as it is and with everything kept; illegal stacks are left out.
  void add_variants(const std::vector<std::string>& stacks) {
    std::vector<std::optional<FitPoint>> as_given(stacks.size());
    std::vector<std::optional<TimedStep>> plain(stacks.size());
    on_all_cores(2 * stacks.size(), [&](size_t i) {
      const std::string& stack = stacks[i / 2];
      if (i % 2 == 0) {
        as_given[i / 2] = looks.at(stack);
        return;
      }
      try {
        plain[i / 2] = looks.build(plain_stack(stack));
      } catch (const Error&) {  // then the stack itself counts as plain
      }
    });
    for (size_t i = 0; i < stacks.size(); ++i) {
      if (!as_given[i]) continue;
      Variant v{.stack = stacks[i], .given = *as_given[i], .plain = *as_given[i]};
      if (plain[i]) v.plain = looks.point_of(plain_stack(stacks[i]), *plain[i]);
      v.plain_step = std::move(plain[i]);
      variants.push_back(std::move(v));
    }
  }

  static double plain_seconds(const Variant& v) {
    return std::min(v.plain.seconds, v.given.seconds);
  }

  // Recomputation may even save a little time. The largest share of the step that this variant
  // could save is the margin for all.
  static double margin_of(const Variant& v) {
    double saved = 0;
    for (const Posed& posed : v.problems) {
      for (const BlockOption& o : posed.problem.options) {
        saved = std::max(saved, -o.cost * posed.problem.blocks);
      }
    }
    return kMargin + saved / plain_seconds(v);
  }

  // The stack with everything kept.
  static std::string plain_stack(const std::string& stack) {
    return is_off(stack, "recompute_cheap") ? stack : joined(stack, "-recompute_cheap");
  }

  // The stack as it was given.
  Variant* own_variant() {
    for (Variant& v : variants) {
      if (v.stack == options.step.stack) return &v;
    }
    return nullptr;
  }

  const Blocks& blocks_of(Variant& v) {
    if (!v.blocks) {
      const std::string stack = plain_stack(v.stack);
      v.blocks = std::make_unique<Blocks>(looks.said(staged ? without_stages(stack) : stack),
                                          looks.options().costs);
    }
    return *v.blocks;
  }

  bool can_choose(Variant& v) { return !staged && blocks_of(v).can_choose() && v.plain_step; }

  // A lower bound: parameters and state are always there, and residences change nothing outside the
  // chain.
  bool can_fit(Variant& v, Bytes budget) {
    if (!v.plain_step) return true;
    if (v.plain_step->plan.state_end > budget) return false;
    return !can_choose(v) || v.blocks->around(*v.plain_step) <= budget;
  }

  // Inside recomputed segments recompute_cheap saves bytes but recomputes twice, so it is neither
  // always better nor always worse. Every option is planned with it and without it.
  void pose(Variant& v) {
    if (v.posed) return;
    v.posed = true;
    if (!can_choose(v)) return;
    std::vector<std::string> bases = {v.stack}, residences;
    if (plain_stack(v.stack) != v.stack) bases.push_back(plain_stack(v.stack));
    for (int o = 0; o < v.blocks->num_options(); ++o) {
      residences.push_back(v.blocks->print(v.blocks->uniform(o)));
    }
    std::map<std::string, std::optional<TimedStep>> built;
    for (const std::string& base : bases) {
      for (const std::string& r : residences) built[joined(base, r)];
    }
    std::vector<std::pair<const std::string, std::optional<TimedStep>>*> waiting;
    for (auto& entry : built) waiting.push_back(&entry);
    on_all_cores(waiting.size(),
                 [&](size_t i) { waiting[i]->second = looks.build(waiting[i]->first); });
    for (const std::string& base : bases) {
      const auto known = [&](const std::string& r) -> const TimedStep& {
        return *built.at(joined(base, r));
      };
      for (const double hidden : kHidden) {
        v.problems.push_back({base, v.blocks->measure(known, *v.plain_step, hidden)});
        if (options.costs.sheet.one_memory()) break;
      }
    }
  }

  // The solver's choice for a goal, built and planned; nothing where the solver finds none.
  struct Tried {
    FitPoint point;
    int64_t model_peak;  // the solver's estimate of its bytes
  };
  std::optional<Tried> choose(const Variant& v, const Posed& posed, int64_t goal) {
    const auto choice = solve(posed.problem, goal);
    if (!choice) return std::nullopt;
    const auto point = looks.at(joined(posed.stack, v.blocks->print(*choice)));
    if (!point) return std::nullopt;
    return Tried{*point, choice->peak};
  }

  // The solver's estimate of bytes is close, but packing adds to it. So its goal is raised while
  // the plan of its choice leaves room, and then lowered until that plan fits. The lower goals are
  // on one grid for all budgets, so that a larger budget tries everything that a smaller one would
  // take.
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
    // Bisects between two steps of the grid.
    int64_t below = std::max(goal, fits);
    for (int half = 0; half < kHalvings && above - below > 1; ++half) {
      const int64_t middle = below + (above - below) / 2;
      const auto between = choose(v, posed, middle);
      (between && between->point.peak <= budget ? below : above) = middle;
    }
    // Bisection may miss a goal whose choice packs well.
    for (int step = 1; step <= kFiner; ++step) {
      if (!choose(v, posed, budget.count - step * budget.count / 100 / kFiner)) return;
    }
  }

  // A block's seconds depend a little on its neighbours' choices, which the solver does not know,
  // so a choice for fewer bytes may be faster. Some goals below the budget are tried, on one grid
  // for all budgets.
  void look_below(const Variant& v, const Posed& posed, Bytes budget) {
    int64_t goal = budget.count;
    for (int step = 0; step < kBelow; ++step) {
      goal = on_grid(goal - 1, kCoarse);
      if (!choose(v, posed, goal)) return;
    }
  }

  // Tries everything that this variant offers for a budget: the solver's choices, stacks that
  // people write by hand (they reach extremes that the solver's options do not), and unchunked
  // logits, which may save time.
  void look_into(Variant& v, Bytes budget) {
    if (staged) return look_at_stages(v);
    pose(v);
    const std::vector<std::string> named = extremes(v);
    on_all_cores(v.problems.size() + named.size(), [&](size_t i) {
      if (i >= v.problems.size()) {
        looks.at(named[i - v.problems.size()]);
        return;
      }
      solve_chain(v, v.problems[i], budget);
      look_below(v, v.problems[i], budget);
    });
    if (!blocks_of(v).can_choose()) solve_locally(v, budget);
  }

  std::vector<std::string> extremes(Variant& v) {
    std::vector<std::string> all;
    if (!is_off(v.stack, "chunk_readout")) {
      all.push_back(joined(plain_stack(v.stack), "-chunk_readout"));
    }
    if (!blocks_of(v).can_choose()) return all;
    for (const char* hand : kByHand) all.push_back(joined(v.stack, hand));
    return all;
  }

  // The same choice for all blocks, and so for all stages: the problem's peak is that of one step,
  // and stages have several.
  void look_at_stages(Variant& v) {
    std::vector<std::string> all = extremes(v);
    if (blocks_of(v).can_choose()) {
      for (int o = 0; o < v.blocks->num_options(); ++o) {
        for (const std::string& base : {v.stack, plain_stack(v.stack)}) {
          all.push_back(joined(base, v.blocks->print(v.blocks->uniform(o))));
        }
      }
      // Those whose segments cross a stage are refused.
      for (int every = 2; every <= kMostEvery; ++every) {
        all.push_back(joined(v.stack, "checkpoint(every=" + std::to_string(every) + ")"));
      }
    }
    on_all_cores(all.size(), [&](size_t i) { looks.at(all[i]); });
  }

  // For models without a chain: a search over sets of tensors to recompute, beginning with none.
  void solve_locally(const Variant& v, Bytes budget) {
    const auto stack_of = [&](const Names& again) {
      if (again.empty()) return v.stack;
      std::vector<std::string> quoted;
      for (const std::string& name : again) quoted.push_back("\"" + name + "\"");
      return joined(v.stack, "reside(again=[" + join(quoted, ", ") + "])");
    };
    LocalProblem problem;
    problem.look = [&](const Names& again) -> std::optional<LocalProblem::Judged> {
      const auto point = looks.at(stack_of(again));
      if (!point) return std::nullopt;
      return LocalProblem::Judged{point->peak, point->seconds};
    };
    problem.at_peak = [&](const Names& again) {
      return alive_at_peak(looks.build(stack_of(again)));
    };
    search_locally(problem, budget);
  }

  // Objects of the forward that are alive at the peak and can be recomputed, those with the most
  // bytes per second of recomputation first.
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

  std::optional<FitPoint> fastest(Bytes budget) const {
    std::optional<FitPoint> best;
    for (const FitPoint& p : looks.all()) {
      if (p.peak > budget) continue;
      // Among equally fast stacks the simplest is taken.
      const auto worth = [](const FitPoint& q) {
        return std::tuple(q.seconds, q.host, q.stack.size(), q.peak);
      };
      if (!best || worth(p) < worth(*best)) best = p;
    }
    return best;
  }

  // Every stack that was ever planned may be the answer, so a larger budget never gets a slower one
  // than a smaller budget got before.
  std::optional<FitPoint> best(Bytes budget) {
    std::optional<double> margin;  // of lower bounds; taken from the first variant that is tried
    for (Variant& v : variants) {
      if (!can_fit(v, budget)) continue;
      const auto so_far = fastest(budget);
      if (margin && so_far && so_far->seconds <= plain_seconds(v) * (1 - *margin)) break;
      look_into(v, budget);
      if (!margin) margin = margin_of(v);
    }
    if (!fastest(budget)) smallest();
    return fastest(budget);
  }

  FitPoint smallest() {
    std::vector<std::string> by_hand;
    for (const Variant& v : variants) {
      for (const char* hand : kByHand) by_hand.push_back(joined(v.stack, hand));
    }
    on_all_cores(by_hand.size(), [&](size_t i) { looks.at(by_hand[i]); });
    Variant* least = nullptr;
    FitPoint point = given;
    const auto take = [&](const std::optional<FitPoint>& p, Variant* v) {
      if (!p || p->peak >= point.peak) return;
      point = *p;
      if (v) least = v;
    };
    for (Variant& v : variants) {
      take(v.given, &v);
      for (const char* hand : kByHand) take(looks.at(joined(v.stack, hand)), &v);
    }
    if (!least) least = &variants[0];
    pose(*least);
    // The fewest bytes by the solver's count are not always the fewest once they are packed.
    std::vector<std::pair<const Posed*, int64_t>> goals;
    for (const Posed& posed : least->problems) {
      const auto goal = static_cast<double>(smallest_budget(posed.problem));
      for (double more = 1; more < kNear; more *= kGrid) {
        goals.emplace_back(&posed, static_cast<int64_t>(std::ceil(goal * more)));
      }
    }
    on_all_cores(goals.size(), [&](size_t i) { choose(*least, *goals[i].first, goals[i].second); });
    if (staged) look_at_stages(*least);
    if (least->problems.empty() && !staged) solve_locally(*least, {0});
    for (const FitPoint& p : looks.all()) take(p, nullptr);
    return point;
  }

  Looks looks;
  const FitOptions& options = looks.options();
  FitPoint given;
  bool staged = false;
  std::vector<Variant> variants;
};

Fit::Fit(Scheme forward, FitOptions options)
    : search_(std::make_unique<Search>(std::move(forward), std::move(options))) {}
Fit::~Fit() = default;

std::optional<FitPoint> Fit::best(Bytes budget) {
  const auto point = search_->best(budget);
  if (!point) return std::nullopt;
  return search_->looks.confirmed(*point);
}
const FitPoint& Fit::given() { return search_->given; }
const FitPoint& Fit::plain() {
  const Search::Variant* own = search_->own_variant();
  return own ? own->plain : search_->given;
}
const ChainProblem* Fit::chain_problem() {
  Search::Variant* own = search_->own_variant();
  if (!own) return nullptr;
  search_->pose(*own);
  return own->problems.empty() ? nullptr : &own->problems[0].problem;
}
std::string Fit::stack_of(const ChainChoice& choice) {
  CHECK(chain_problem(), "a choice of this chain");
  const Search::Variant* own = search_->own_variant();
  return joined(own->stack, own->blocks->print(choice));
}
FitPoint Fit::smallest() { return search_->looks.confirmed(search_->smallest()); }
std::vector<FitPoint> Fit::considered() const { return search_->looks.all(); }

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
