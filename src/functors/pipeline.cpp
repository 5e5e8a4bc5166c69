// From a model to a step: all phases, in order. When you add a line, say why it is there.
#include "functors/pipeline.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "analysis/roles.h"
#include "analysis/stages.h"
#include "base/error.h"
#include "base/text.h"
#include "functors/evaluation.h"
#include "functors/evaluation_beside.h"
#include "functors/phases.h"
#include "functors/stage_work.h"
#include "ops/loss_count.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// A step before attributes are set, and the reports of the functors that were applied so far. All
// stacks with the same rules of the first two phases share it.
struct Beginning {
  Scheme scheme;
  std::map<std::string, Applied> applied;  // by what the functor was called as
  Application::Said said;
};

class Pipeline {
 public:
  // An evaluation of so many positions at a time, if that is not 0.
  Pipeline(const Stack& stack, const StepOptions& options, bool training,
           std::vector<Firing>* firings = nullptr, const GenerationOptions& generation = {})
      : stack_(stack),
        options_(options),
        training_(training),
        positions_(generation.positions),
        all_frozen_(generation.all_frozen),
        firings_(firings) {
    for (size_t i = 0; i < stack.functors.size(); ++i) {
      const StackedFunctor& f = stack.functors[i];
      if (training && f.functor.of_forward) {
        fail(f.functor.name,
             ": is of a forward scheme, and generation applies it by itself; a step ",
             "that trains has all positions at once");
      }
      result_.applied.push_back({.name = f.print(),
                                 .law = f.functor.law,
                                 .against = against(stack, i),
                                 .by_default = f.by_default,
                                 .idle = is_idle(f, options.target)});
    }
  }

  // What the stack's beginning depends on: its morphism rules, and how it trains parameters.
  std::string beginning_key() const {
    std::string key;
    for_each_rewriting([&](size_t i) { key += result_.applied[i].name + "\n"; });
    return key;
  }

  Beginning begin(const Scheme& forward) {
    begin_with(forward);
    Beginning beginning{.scheme = result_.scheme, .applied = {}, .said = said_};
    for_each_rewriting(
        [&](size_t i) { beginning.applied[result_.applied[i].name] = result_.applied[i]; });
    return beginning;
  }

  void begin_from(const Beginning& beginning) {
    result_.scheme = beginning.scheme;
    said_ = beginning.said;
    for_each_rewriting([&](size_t i) {
      const bool by_default = result_.applied[i].by_default;
      result_.applied[i] = beginning.applied.at(result_.applied[i].name);
      result_.applied[i].by_default = by_default;
    });
  }

  void begin_with(const Scheme& forward) {
    result_.scheme = forward;
    // Morphism rules rewrite the model itself, so the adjoint differentiates what they wrote.
    untouched_ = &forward;
    apply(FunctorPhase::kMorphisms);
    untouched_ = nullptr;
    // Only now, so that roles are those of training, and random ops that the rules added are
    // removed, too.
    if (!training_) take(without_randomness(result_.scheme));
    if (all_frozen_) freeze_all();
    // What the optimizer reads of parameters is said of those that no rule has frozen. The adjoint
    // comes first, because the optimizer needs gradients.
    if (training_) {
      apply(FunctorPhase::kAdjoint);
      take(apply_adjoint(result_.scheme));
      take(apply_optimizer(result_.scheme, options_));
    }
  }

  const Scheme& say() {
    // Updates are there to be followed; attributes are said of what follows them, too.
    if (training_) apply(FunctorPhase::kStates);
    // Step rules and object rules see every object that the step has.
    apply(FunctorPhase::kStepRules);
    // Blocks have their stages; all else follows, so that no fusion joins what is to be cut.
    if (!options_.on_mesh || positions_ > 0) forget_stages();
    if (!result_.scheme.schedule.empty()) take(spread_stages(std::move(result_.scheme)));
    return result_.scheme;
  }

  // From now on parameters lie, and are held, as those of this scheme.
  void place_as(const Scheme& step) { placed_as_ = &step; }

  BuiltStep run(const Scheme& forward) {
    say();
    // Fusions that change bits come before residence, so that a clone copies the fused node.
    apply(FunctorPhase::kBitChanging);
    // Residence and tier come last, because they must see every object that the others create.
    take(realize_precision(std::move(result_.scheme), placed_as_));
    // One rank alone has no mesh, whatever the stack says.
    if (!options_.on_mesh || positions_ > 0) result_.scheme.mesh.clear();
    if (placed_as_) place_parameters(*placed_as_);
    take(realize_placement(std::move(result_.scheme), who_said()));
    // What is kept of positions has the precision in which it is read, so that comes first. The
    // rest sees the step as it will run.
    apply(FunctorPhase::kPositions);
    if (!training_) limit_parts();
    take(realize_time(result_.scheme, who_said("parts")));
    // Chunks are cut from a part of the batch, and residence must see them.
    apply(FunctorPhase::kTimed);
    take(realize_residence(std::move(result_.scheme)));
    take(realize_tier(std::move(result_.scheme)));
    // Last come functors that keep bits, or only change where sums are made.
    apply(FunctorPhase::kExact);
    if (!options_.verify_each) verify(result_.scheme);
    check_stages(result_.scheme);
    for (size_t i = 0; i < stack_.functors.size(); ++i) {
      const Functor& f = stack_.functors[i].functor;
      // An evaluation has no gradients and no optimizer, so a functor may find nothing there.
      if (result_.applied[i].matches > 0 || f.may_match_none || !training_) continue;
      const std::vector<std::string>& within = stack_.functors[i].within;
      fail(within.empty() ? "" : join(within, ": ") + ": ", result_.applied[i].name,
           ": matches nothing; this scheme has ", Roles(forward).describe());
    }
    return std::move(result_);
  }

 private:
  void take(Scheme scheme) {
    if (options_.verify_each) verify(scheme);
    result_.scheme = std::move(scheme);
  }

  void forget_stages() {
    result_.scheme.schedule.clear();
    for (Object& object : result_.scheme.objects) object.attributes.stage = 0;
  }

  void place_parameters(const Scheme& step) {
    Scheme& scheme = result_.scheme;
    for (const Value in : scheme.inputs) {
      const auto held = step.find(scheme[in].source);
      if (scheme[in].role != Role::kParameter || !held) continue;
      std::vector<Placement>& all = scheme[in].attributes.placement;
      for (const MeshAxis& axis : scheme.mesh) {
        const auto over = [&](const Placement& p) { return p.mesh_axis == axis.name; };
        if (std::any_of(all.begin(), all.end(), over)) continue;  // both were told the same
        Placement placement{.mesh_axis = axis.name};
        for (const Placement& p : step[*held].attributes.placement) {
          if (!over(p) || p.spread != Spread::kSharded) continue;
          placement.spread = p.spread;
          placement.axis = p.axis;
          placement.segments = p.segments;
        }
        all.push_back(std::move(placement));
      }
    }
  }

  WhoSaid who_said() const {
    const auto axis = [&](std::string_view name) {
      const auto said = said_.find({std::string(name), "mesh"});
      return said == said_.end() ? "the stack" : said->second.by;
    };
    const auto residence = [&](const Source& source) {
      return said_.count({to_string(source), "residence"}) > 0;
    };
    return {.axis = axis, .residence = residence};
  }

  // The first functor that said an attribute of anything, for messages; "parts again" are parts.
  std::string who_said(std::string_view attribute) const {
    for (const auto& [of, saying] : said_) {
      if (of.second.starts_with(attribute)) return saying.by;
    }
    return "the stack";
  }

  // What is said of frozen parameters is said of all.
  void freeze_all() {
    for (const Value in : result_.scheme.inputs) {
      Object& object = result_.scheme[in];
      object.frozen = object.frozen || object.role == Role::kParameter;
    }
  }

  // An evaluation may have fewer samples than the training step has parts. Positions come in steps
  // already, and a step of them is one part; so is a scheme without a loss, whose samples leave it.
  void limit_parts() {
    const std::vector<Morphism>& calls = result_.scheme.morphisms;
    const bool sums = std::any_of(calls.begin(), calls.end(), is_loss_term);
    for (const Value in : result_.scheme.inputs) {
      Object& data = result_.scheme[in];
      const int64_t samples = data.type.rank() ? data.type.dim(0) : 1;
      int& parts = data.attributes.parts;
      parts =
          positions_ > 0 || !sums ? 1 : static_cast<int>(std::clamp<int64_t>(samples, 1, parts));
    }
  }

  template <class F>
  void for_each_rewriting(const F& f) const {
    for (size_t i = 0; i < stack_.functors.size(); ++i) {
      const std::vector<FunctorRule>& rules = stack_.functors[i].functor.rules;
      const auto rewrites = [](const FunctorRule& r) {
        return r.phase == FunctorPhase::kMorphisms || r.phase == FunctorPhase::kAdjoint;
      };
      if (std::any_of(rules.begin(), rules.end(), rewrites)) f(i);
    }
  }

  // The ranks that remain where each axis of the mesh whose size is said has its own.
  int ranks_left() const {
    std::map<std::string, int> said;
    std::string taker;  // the functor that wants them
    for (const StackedFunctor& f : stack_.functors) {
      if (!f.functor.mesh) continue;
      for (const MeshAxis& axis : f.functor.mesh(f.args)) {
        if (axis.size == 0) taker = f.functor.name;
        if (axis.size > 0) said[axis.name] = axis.size;
      }
    }
    if (taker.empty()) return 0;
    // One rank does all the work, and the stack is as legal as on several.
    if (!options_.on_mesh || positions_ > 0) return 2;
    if (options_.ranks == 0) {
      fail(taker, ": takes the ranks that are left, and nobody said how many there are: say ",
           taker, "(n) or --ranks");
    }
    int others = 1;
    std::vector<std::string> axes;
    for (const auto& [axis, size] : said) {
      others *= size;
      axes.push_back(axis + "=" + std::to_string(size));
    }
    if (options_.ranks % others == 0) return options_.ranks / others;
    const int below = options_.ranks / others * others;
    fail(taker, ": ", options_.ranks, " ranks cannot be shared by the rest of the mesh (",
         join(axes, ", "), "); the nearest that can are ",
         below > 0 ? std::to_string(below) + " and " : "", below + others);
  }

  void apply(FunctorPhase phase) {
    const int left = phase == FunctorPhase::kStepRules ? ranks_left() : 0;
    std::vector<std::string> rewriters;
    for (size_t i = 0; i < stack_.functors.size(); ++i) {
      const StackedFunctor& stacked = stack_.functors[i];
      if (result_.applied[i].idle) continue;
      for (const FunctorRule& rule : stacked.functor.rules) {
        if (rule.phase != phase) continue;
        Application application{.functor = stacked.functor.name,
                                .args = stacked.args,
                                .options = options_,
                                .training = training_,
                                .said = &said_,
                                .untouched = untouched_,
                                .rewriters = rewriters,
                                .ranks_left = left,
                                .index = i,
                                .firings = firings_};
        Applied& applied = result_.applied[i];
        applied.calls_added -= static_cast<int64_t>(result_.scheme.morphisms.size());
        try {
          take(rule.apply(std::move(result_.scheme), application));
        } catch (const Error& e) {
          if (stacked.within.empty()) throw;
          fail(join(stacked.within, ": "), ": ", e.what());
        }
        applied.calls_added += static_cast<int64_t>(result_.scheme.morphisms.size());
        applied.matches += application.matches;
        if (application.matches > 0 && !stacked.by_default) rewriters.push_back(applied.name);
        for (const auto& [what, count] : application.counts) applied.counts[what] += count;
        for (std::string& rule : application.idle) {
          // A rule that speaks in two phases is told of once.
          std::vector<std::string>& told = applied.idle_rules;
          if (std::find(told.begin(), told.end(), rule) == told.end()) told.push_back(rule);
        }
        std::move(application.doubts.begin(), application.doubts.end(),
                  std::back_inserter(applied.doubts));
      }
    }
  }

  const Stack& stack_;
  const StepOptions& options_;
  bool training_;
  int64_t positions_;
  bool all_frozen_;
  std::vector<Firing>* firings_;
  const Scheme* placed_as_ = nullptr;
  const Scheme* untouched_ = nullptr;  // while morphism rules are applied
  BuiltStep result_;
  Application::Said said_;
};

}  // namespace

BuiltStep build_step(const Scheme& forward, const Stack& stack, const StepOptions& options,
                     std::vector<Firing>* firings) {
  Pipeline pipeline(stack, options, true, firings);
  pipeline.begin_with(forward);
  return pipeline.run(forward);
}

struct StepBuilder::Beginnings {
  std::mutex mutex;
  std::map<std::string, Beginning> known;  // nothing is ever taken away

  const Beginning& of(const Scheme& forward, const Stack& stack, const StepOptions& options) {
    Pipeline pipeline(stack, options, true);
    const std::string key = pipeline.beginning_key();
    const std::lock_guard lock(mutex);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    return known.emplace(key, pipeline.begin(forward)).first->second;
  }
};

StepBuilder::StepBuilder(Scheme forward, StepOptions options)
    : forward_(std::move(forward)),
      options_(std::move(options)),
      beginnings_(std::make_unique<Beginnings>()) {}
StepBuilder::~StepBuilder() = default;

BuiltStep StepBuilder::build(const Stack& stack) {
  Pipeline pipeline(stack, options_, true);
  pipeline.begin_from(beginnings_->of(forward_, stack, options_));
  return pipeline.run(forward_);
}

Scheme StepBuilder::said(const Stack& stack) {
  Pipeline pipeline(stack, options_, true);
  pipeline.begin_from(beginnings_->of(forward_, stack, options_));
  return pipeline.say();
}

Scheme said_step(const Scheme& forward, const Stack& stack, const StepOptions& options) {
  Pipeline pipeline(stack, options, true);
  pipeline.begin_with(forward);
  return pipeline.say();
}

Scheme training_step(const Scheme& forward, const StepOptions& options) {
  return build_step(forward, parse_stack(options.stack), options).scheme;
}

BuiltStep build_evaluation(const Scheme& forward, const Stack& stack, const StepOptions& options) {
  Pipeline pipeline(stack, options, false);
  pipeline.begin_with(forward);
  return pipeline.run(forward);
}

Scheme generation_scheme(const Scheme& forward, const Stack& stack, const StepOptions& options,
                         const GenerationOptions& generation) {
  CHECK(generation.positions > 0, "positions come a few at a time");
  std::string applied = "hold_narrow | cache(positions=" + std::to_string(generation.positions);
  if (generation.most > 0) applied += ", most=" + std::to_string(generation.most);
  applied += ")";
  if (generation.usable > 0)
    applied += " | choose(usable=" + std::to_string(generation.usable) + ")";
  // A step of several positions keeps its matrices apart: they are read by products that are worth
  // it, and whoever loads parameters finds them there.
  if (generation.positions == 1) applied += " | multiply_codes | join_heads | spread_rows";
  const Stack whole = with_forward_functors(stack, applied);
  Pipeline pipeline(whole, options, false, nullptr, generation);
  pipeline.begin_with(forward);
  return pipeline.run(forward).scheme;
}

Scheme evaluation_beside(const Scheme& step, const Scheme& forward, const Stack& stack,
                         const StepOptions& options) {
  Pipeline pipeline(stack, options, false);
  pipeline.begin_with(forward);
  pipeline.place_as(step);
  return pipeline.run(forward).scheme;
}

Scheme evaluation_scheme(const Scheme& forward, const Stack& stack, const StepOptions& options) {
  return build_evaluation(forward, stack, options).scheme;
}

}  // namespace adjoint
