// One file, for a search is one thought: what is tried next depends on all that was found before.
#include "plan/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "plan/blocks.h"
#include "plan/candidates.h"
#include "plan/local_search.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

constexpr int kTries = 16;        // goals for the solver, downwards until the real plan fits
constexpr int kTriesUp = 4;       // and upwards before
constexpr int kFiner = 8;         // goals within the percent that packing may add
constexpr int kHalvings = 4;      // of the last step down
constexpr int64_t kFar = 50;      // a plan that is over the budget by more than this part of it
constexpr double kGrid = 1.002;   // between goals on the way down
constexpr double kCoarse = 1.02;  // between goals below a budget that are tried anyway,
constexpr int kBelow = 3;         // so many
constexpr double kNear = 1.015;   // the smallest step is sought up to this times the solver's bytes
constexpr int kMostEvery = 8;     // blocks in a segment of a stage
constexpr size_t kAtOnce = 4;     // variants that are built together, whatever the cores
// By how much estimates of seconds may be wrong, as a share: those that a variant's step with
// everything kept gives for all its choices, and those of the solver.
constexpr double kMargin = 0.002, kUnmeasured = 0.01, kMostMargin = 0.02, kSolver = 0.01;
constexpr double kHopeless = 0.03;   // a choice for more bytes that is so much slower than the best
constexpr double kExpected = 1.05;   // variants that are built together may differ by so much
constexpr double kNearBest = 0.004;  // within this share of the best, choices are refined
constexpr double kNever = 1e300;     // seconds
constexpr const char* kByHand[] = {"checkpoint(block)", "checkpoint(sqrt)", "checkpoint(all)"};
// How much of the seconds between tiers the solver counts: all, or as if they were hidden.
constexpr double kHidden[] = {1, 0.05};

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

}  // namespace

struct Fit::Search {
  // A stack's chain as a problem, with one way to count copies.
  struct Posed {
    std::string stack;  // to which chosen residences are added
    double hidden = 1;  // the share of the copies' seconds that counts
    ChainProblem problem = {};
    // The fewest seconds that were found, as a multiple of what was estimated; 0: not tried.
    double real = 0;
  };
  // A stack without residences, and what can be chosen of them.
  struct Variant {
    size_t precision, tier, part;  // of the candidates
    std::string stack = {};
    // No choice of residences takes fewer seconds, but for a margin. Before the variant is built,
    // those of one that moves and splits less.
    double bound = 0;
    bool built = false, legal = false;
    FitPoint plain = {};  // with everything kept
    std::optional<TimedStep> plain_step = {};
    bool posed = false;
    std::vector<Posed> problems = {};
  };

  Search(Scheme model, FitOptions with) : looks(std::move(model), std::move(with)) {
    const TimedStep as_given = looks.build(options.step.stack);
    given = looks.point_of(options.step.stack, as_given);
    staged = !as_given.scheme.schedule.empty();
    candidates = candidates_beside(parse_stack(options.step.stack), looks.said(options.step.stack),
                                   as_given.scheme, options);
    for (size_t p = 0; p < candidates.precisions.size(); ++p) {
      for (size_t t = 0; t < candidates.tiers.size(); ++t) {
        for (size_t n = 0; n < candidates.parts.size(); ++n) {
          const std::string added =
              joined(candidates.precisions[p], joined(candidates.parts[n], candidates.tiers[t]));
          variants.push_back(
              {.precision = p, .tier = t, .part = n, .stack = joined(options.step.stack, added)});
        }
      }
    }
    try {
      build({&own()});
    } catch (const CutOff&) {
      own().plain = given;
    }
  }

  Variant& own() { return variants[0]; }  // the stack as it was given
  Variant* variant(size_t precision, size_t tier, size_t part) {
    if (tier == candidates.tiers.size() || part == candidates.parts.size()) return nullptr;
    return &variants[(precision * candidates.tiers.size() + tier) * candidates.parts.size() + part];
  }

  // Builds variants with everything kept. Where that is refused the stack itself counts as plain.
  void build(const std::vector<Variant*>& those) {
    on_all_cores(those.size(), [&](size_t i) {
      Variant& v = *those[i];
      if (v.built) return;
      const std::string plain = plain_stack(v.stack);
      try {
        v.plain_step = looks.build(plain);
        v.plain = looks.point_of(plain, *v.plain_step);
        v.legal = true;
      } catch (const Error&) {
        if (const auto point = looks.at(v.stack)) v.plain = *point, v.legal = true;
      }
      v.bound = std::max(v.bound, v.plain.seconds);
      v.built = true;
    });
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
    return std::min(kMargin + saved / v.plain.seconds, kMostMargin);
  }

  // The stack with everything kept.
  static std::string plain_stack(const std::string& stack) {
    return is_off(stack, "recompute_cheap") ? stack : joined(stack, "-recompute_cheap");
  }

  // Tiers and parts change nothing of what a block could keep.
  const Blocks& blocks_of(const Variant& v) {
    std::unique_ptr<Blocks>& known = blocks[v.precision];
    if (!known) {
      const std::string stack = plain_stack(v.stack);
      known = std::make_unique<Blocks>(looks.said(staged ? without_stages(stack) : stack),
                                       looks.options().costs);
    }
    return *known;
  }

  bool can_choose(const Variant& v) { return !staged && blocks_of(v).can_choose() && v.plain_step; }

  // Whether choices that hardly win are left untried: of a long chain each plan takes its time.
  bool saves(const Variant& v) { return blocks_of(v).is_long(); }

  // Bytes that no choice of residences goes below: parameters and state are always there, and
  // residences change nothing outside the chain.
  Bytes state_of(const Variant& v) const {
    return v.plain_step ? v.plain_step->plan.state_end : Bytes{0};
  }
  Bytes least_of(const Variant& v) {
    return can_choose(v) ? std::max(state_of(v), around(v)) : state_of(v);
  }
  Bytes around(const Variant& v) { return blocks_of(v).around(*v.plain_step); }
  // Bytes that a variant's chain has more for itself than another's.
  int64_t freed(const Variant& v, const Variant& other) {
    return (around(other) - around(v)).count;
  }

  // Inside recomputed segments recompute_cheap saves bytes but recomputes twice, so it is neither
  // always better nor always worse. Every option is planned with it and without it.
  void pose(Variant& v) {
    if (v.posed || !can_choose(v)) return;
    const Blocks& blocks = blocks_of(v);
    std::vector<std::string> bases = {v.stack}, residences;
    if (plain_stack(v.stack) != v.stack) bases.push_back(plain_stack(v.stack));
    for (const ChainChoice& sample : blocks.samples()) residences.push_back(blocks.print(sample));
    std::map<std::string, std::optional<TimedStep>> built;
    for (const std::string& base : bases) {
      for (const std::string& r : residences) built[joined(base, r)];
    }
    std::vector<std::pair<const std::string, std::optional<TimedStep>>*> waiting;
    for (auto& entry : built) waiting.push_back(&entry);
    on_all_cores(waiting.size(), [&](size_t i) {
      try {
        waiting[i]->second = looks.build(waiting[i]->first);
      } catch (const Error&) {  // then this base has no choices
      }
    });
    for (const std::string& base : bases) {
      const bool legal = std::all_of(residences.begin(), residences.end(), [&](const auto& r) {
        return built.at(joined(base, r)).has_value();
      });
      if (!legal) continue;
      const auto known = [&](const std::string& r) -> const TimedStep& {
        return *built.at(joined(base, r));
      };
      for (const double hidden : kHidden) {
        v.problems.push_back({.stack = base,
                              .hidden = hidden,
                              .problem = blocks.measure(known, *v.plain_step, hidden)});
        if (options.costs.sheet.one_memory()) break;
      }
    }
    v.posed = true;
  }

  // The solver's choice for a goal, built and planned; nothing where the solver finds none.
  struct Tried {
    FitPoint point;
    int64_t model_peak;  // the solver's estimate of its bytes
  };
  std::optional<Tried> choose(const Variant& v, const Posed& posed, int64_t goal) {
    const auto choice = solve(posed.problem, goal);
    if (!choice) return std::nullopt;
    const auto point = looks.at(joined(posed.stack, blocks_of(v).print(*choice)));
    if (!point) return std::nullopt;
    return Tried{*point, choice->peak};
  }

  // Whether seconds that were estimated, with such an error, may be fewer than the best so far.
  bool may_win(double seconds, double error, Bytes budget) const {
    const auto so_far = fastest(budget);
    return !so_far || seconds * (1 - error) < so_far->seconds;
  }

  // No fewer seconds than the solver's choice takes, for a budget that is so many bytes larger.
  // Time in which ranks wait for each other may hide what is recomputed.
  static std::optional<double> estimate(const Variant& v, const Posed& posed, Bytes budget,
                                        int64_t more = 0) {
    const auto choice = solve(posed.problem, budget.count + more);
    if (!choice) return std::nullopt;
    const double hidden = std::clamp(choice->cost, 0.0, v.plain_step->time.ranks_waited);
    return v.plain.seconds + choice->cost - hidden;
  }

  // The least of the estimates that count all copies, which is what to expect; nothing where
  // nothing is within the budget.
  static std::optional<double> expected(const Variant& v, Bytes budget) {
    std::optional<double> least;
    for (const Posed& posed : v.problems) {
      if (posed.hidden < 1) continue;
      const auto seconds = estimate(v, posed, budget);
      if (seconds) least = std::min(least.value_or(*seconds), *seconds);
    }
    return least;
  }

  // A variant that moves more to the host than one whose chain was measured differs from it in the
  // bytes beside the chain and in what the copies cost: so nothing need be measured to see that it
  // cannot win, the less so where it is known how far off the estimates of that one were.
  bool is_beaten(const Variant& v, Bytes budget) {
    if (v.tier == 0 || !can_choose(v)) return false;
    const Variant& less = *variant(v.precision, v.tier - 1, v.part);
    if (less.problems.empty()) return false;
    const int64_t more = freed(v, less);
    return std::none_of(less.problems.begin(), less.problems.end(), [&](const Posed& posed) {
      const auto seconds = estimate(v, posed, budget, more);
      if (!seconds) return false;
      return posed.real > 0 ? may_win(*seconds * std::max(1.0, posed.real), kMargin, budget)
                            : may_win(*seconds, 2 * kSolver, budget);
    });
  }

  // A problem whose choices were tried, the fewest seconds of those that fit, and where the search
  // for its goal ended.
  struct Solved {
    const Variant* variant;
    Posed* posed;
    double estimated = 0, seconds = 0;
    std::pair<int64_t, int64_t> last_step = {};
  };

  // The solver's estimate of bytes is close, but packing adds to it. So its goal is raised while
  // the plan of its choice leaves room, and then lowered until that plan fits. The lower goals are
  // on one grid for all budgets, so that a larger budget tries everything that a smaller one would
  // take. Where plans are to be saved it ends where even a choice for more bytes is much slower
  // than `so_far`.
  void solve_chain(Solved& s, Bytes budget, double so_far, bool saving) {
    double least = kNever;  // seconds of those that fit
    double fewest = kNever;
    const auto at = [&](int64_t goal) {
      const auto tried = choose(*s.variant, *s.posed, goal);
      if (!tried) return tried;
      fewest = std::min(fewest, tried->point.seconds);
      if (tried->point.peak <= budget) least = std::min(least, tried->point.seconds);
      return tried;
    };
    int64_t goal = budget.count, fits = 0, above = goal;
    bool full = false;
    auto tried = at(goal);
    for (int up = 0; up < kTriesUp && !full && tried && tried->point.peak <= budget; ++up) {
      fits = goal;
      const int64_t room = budget.count - tried->point.peak.count;
      full = room < budget.count / 400;
      if (full) break;
      goal = std::max(tried->model_peak + room, goal + 1);
      tried = at(goal);
    }
    above = goal;
    for (int down = 0; down < kTries && tried && tried->point.peak > budget; ++down) {
      const int64_t over = tried->point.peak.count - budget.count;
      const bool finely = down < kTries / 2 && over < budget.count / kFar;
      const int64_t excess = finely ? 1 : over;
      if (saving && tried->point.seconds * (1 - kHopeless) > std::min(so_far, least)) break;
      above = goal;
      goal = on_grid(goal - excess);
      if (goal <= fits) break;
      tried = at(goal);
    }
    s.last_step = full ? std::pair(fits, fits) : std::pair(std::max(goal, fits), above);
    s.seconds = least;
    // A choice that does not fit takes no more seconds than one that does.
    const double found = least < kNever ? least : fewest;
    if (found < kNever) s.posed->real = found / s.estimated;
  }

  // Bisects between two steps of the grid. A choice that packs well may be missed, so some goals
  // right below the budget are tried. And a block's seconds depend a little on its neighbours'
  // choices, which the solver does not know, so a choice for fewer bytes may be faster: some goals
  // further below are tried, too, on one grid for all budgets.
  void refine(const Solved& s, Bytes budget) {
    auto [below, above] = s.last_step;
    for (int half = 0; half < kHalvings && above - below > 1; ++half) {
      const int64_t middle = below + (above - below) / 2;
      const auto tried = choose(*s.variant, *s.posed, middle);
      (tried && tried->point.peak <= budget ? below : above) = middle;
    }
    for (int step = 1; step <= kFiner; ++step) {
      const int64_t goal = budget.count - step * budget.count / 100 / kFiner;
      if (!choose(*s.variant, *s.posed, goal)) break;
    }
    int64_t goal = budget.count;
    for (int step = 0; step < kBelow; ++step) {
      goal = on_grid(goal - 1, kCoarse);
      if (!choose(*s.variant, *s.posed, goal)) break;
    }
  }

  // Tries what this variant offers for a budget: the stack as it is, the one that people write by
  // hand, and the solver's choices where they may win.
  std::vector<Solved> look_into(Variant& v, Bytes budget) {
    const bool chain = blocks_of(v).can_choose();
    std::vector<std::string> named = {v.stack};
    if (chain) named.push_back(joined(v.stack, kByHand[0]));
    std::vector<Solved> solved;
    for (Posed& posed : v.problems) {
      const auto seconds = estimate(v, posed, budget);
      if (!seconds || (saves(v) && !may_win(*seconds, kSolver, budget))) continue;
      solved.push_back(
          {.variant = &v, .posed = &posed, .estimated = *seconds, .seconds = *seconds});
    }
    const auto so_far = fastest(budget);
    on_all_cores(solved.size() + named.size(), [&](size_t i) {
      if (i < solved.size()) {
        solve_chain(solved[i], budget, so_far ? so_far->seconds : kNever, saves(v));
      } else {
        looks.at(named[i - solved.size()]);
      }
    });
    if (!chain) solve_locally(v, budget);
    return solved;
  }

  // Unchunked logits, which may save time, and other distances of states than the solver's.
  std::vector<std::string> extremes(const Variant& v) {
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
  void look_at_stages(const Variant& v) {
    std::vector<std::string> all = extremes(v);
    all.push_back(v.stack);
    const Blocks& blocks = blocks_of(v);
    if (blocks.can_choose()) {
      for (int o = 0; o < blocks.num_options(); ++o) {
        for (const std::string& base : {v.stack, plain_stack(v.stack)}) {
          all.push_back(joined(base, blocks.print(blocks.uniform(o))));
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

  // Beginning with every precision, variants are measured, and solved in the order of what the
  // solver estimates. One that moves more to the host or splits the batch further takes no fewer
  // seconds than the one that it comes from with everything kept, and is looked at only where that
  // one does not fit so. What may not win is left out.
  void look_for(Bytes budget) {
    struct Open {
      Variant* variant;
      double expected;  // seconds
      bool measured = false;
    };
    std::vector<Open> open;
    std::set<const Variant*> seen;
    const auto add = [&](Variant* v, double bound, double expected) {
      if (!v || !seen.insert(v).second) return;
      v->bound = std::max(v->bound, bound);
      open.push_back({v, expected});
    };
    for (size_t p = 0; p < candidates.precisions.size(); ++p) add(variant(p, 0, 0), 0, 0);
    std::set<std::tuple<int64_t, int64_t, double>> figures;  // two stacks may be one step
    std::optional<double> margin;  // of bounds; taken from the first variant that is measured
    std::vector<Solved> solved;
    for (Variant& v : variants) {
      for (Posed& posed : v.problems) posed.real = 0;
    }
    while (!open.empty()) {
      const auto next =
          std::min_element(open.begin(), open.end(),
                           [](const Open& a, const Open& b) { return a.expected < b.expected; });
      Open here = *next;
      Variant& v = *here.variant;
      if (!v.built) {
        std::vector<Variant*> together;
        for (const Open& each : open) {
          const bool alike = each.expected <= kExpected * here.expected;
          if (each.variant->built || !alike || together.size() == kAtOnce) continue;
          together.push_back(each.variant);
        }
        build(together);
        for (Open& each : open) each.expected = std::max(each.expected, each.variant->bound);
        continue;
      }
      open.erase(next);
      if (!may_win(v.bound, margin.value_or(kUnmeasured), budget)) continue;
      if (here.measured) {
        for (Solved& each : look_into(v, budget)) solved.push_back(each);
        continue;
      }
      const bool possible =
          v.legal && least_of(v) <= budget && !is_beaten(v, budget) &&
          figures.insert({v.plain.peak.count, v.plain.host.count, v.plain.seconds}).second;
      if (possible && staged) look_at_stages(v);
      if (possible && !staged) {
        pose(v);
        if (!margin && !v.problems.empty()) margin = margin_of(v);
        here.expected = std::max(here.expected, expected(v, budget).value_or(here.expected));
        here.measured = true;
        open.push_back(here);
      }
      if (v.legal && v.plain.peak <= budget) continue;
      add(variant(v.precision, v.tier + 1, v.part), v.bound, here.expected);
      // Parts of a batch make activations smaller, and nothing that is always there.
      if (state_of(v) <= budget) {
        add(variant(v.precision, v.tier, v.part + 1), v.bound, here.expected);
      }
    }
    finish(solved, budget);
  }

  // Of those that are nearly the best, what else may be found near by; and, beside the best, what
  // reaches extremes that the solver's options do not.
  void finish(const std::vector<Solved>& solved, Bytes budget) {
    const auto best = fastest(budget);
    std::vector<const Solved*> near;
    for (const Solved& s : solved) {
      const bool may = !best || s.seconds * (1 - kNearBest) <= best->seconds;
      if (may || !saves(*s.variant)) near.push_back(&s);
    }
    const Variant* leader = nullptr;
    for (const Variant& v : variants) {
      if (!best || !v.legal || !best->stack.starts_with(v.stack)) continue;
      if (!leader || v.stack.size() > leader->stack.size()) leader = &v;
    }
    const std::vector<std::string> others =
        leader && !staged ? extremes(*leader) : std::vector<std::string>{};
    on_all_cores(near.size() + others.size(), [&](size_t i) {
      if (i < near.size()) {
        refine(*near[i], budget);
      } else {
        looks.at(others[i - near.size()]);
      }
    });
  }

  // Every stack that was ever planned may be the answer, so a larger budget never gets a slower one
  // than a smaller budget got before.
  std::optional<FitPoint> best(Bytes budget) {
    try {
      look_for(budget);
      if (!fastest(budget)) look_for_smallest();
    } catch (const CutOff&) {
    }
    return fastest(budget);
  }

  // Variants in the order of the bytes that they cannot do without.
  void look_for_smallest() {
    std::vector<Variant*> order;
    for (Variant& v : variants) order.push_back(&v);
    build(order);
    std::erase_if(order, [](const Variant* v) { return !v->legal; });
    std::map<const Variant*, Bytes> bound;
    for (Variant* v : order) bound[v] = least_of(*v);
    std::stable_sort(order.begin(), order.end(),
                     [&](const Variant* a, const Variant* b) { return bound[a] < bound[b]; });
    Variant* least = order.empty() ? &own() : order[0];
    FitPoint point = given;
    for (size_t from = 0; from < order.size(); from += kAtOnce) {
      const size_t to = std::min(order.size(), from + kAtOnce);
      if (bound[order[from]] >= point.peak) break;
      std::vector<std::pair<Variant*, std::string>> by_hand;
      for (size_t i = from; i < to; ++i) {
        by_hand.emplace_back(order[i], order[i]->stack);
        for (const char* hand : kByHand) {
          by_hand.emplace_back(order[i], joined(order[i]->stack, hand));
        }
      }
      on_all_cores(by_hand.size(), [&](size_t i) { looks.at(by_hand[i].second); });
      for (const auto& [v, stack] : by_hand) {
        const auto found = looks.at(stack);
        if (found && found->peak < point.peak) point = *found, least = v;
      }
    }
    if (staged) return look_at_stages(*least);
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
    if (least->problems.empty()) solve_locally(*least, {0});
  }

  FitPoint smallest() {
    try {
      look_for_smallest();
    } catch (const CutOff&) {
    }
    FitPoint least = given;
    for (const FitPoint& p : looks.all()) {
      if (p.peak < least.peak) least = p;
    }
    return least;
  }

  Looks looks;
  const FitOptions& options = looks.options();
  FitPoint given;
  bool staged = false;
  FitCandidates candidates;
  std::vector<Variant> variants;
  std::map<size_t, std::unique_ptr<Blocks>> blocks;  // by precision
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
const FitPoint& Fit::plain() { return search_->own().plain; }
const ChainProblem* Fit::chain_problem() {
  Search::Variant& own = search_->own();
  search_->pose(own);
  return own.problems.empty() ? nullptr : &own.problems[0].problem;
}
std::string Fit::stack_of(const ChainChoice& choice) {
  CHECK(chain_problem(), "a choice of this chain");
  const Search::Variant& own = search_->own();
  return joined(own.stack, search_->blocks_of(own).print(choice));
}
FitPoint Fit::smallest() { return search_->looks.confirmed(search_->smallest()); }
std::vector<FitPoint> Fit::considered() const { return search_->looks.all(); }
bool Fit::cut_off() const { return search_->looks.cut_off(); }

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
