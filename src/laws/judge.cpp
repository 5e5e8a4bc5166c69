#include "laws/judge.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/text.h"
#include "functors/reference.h"

namespace adjoint {

namespace {

// Four units in the last place: bounds are multiples of at least this.
constexpr double kFloor = 0x1p-22;
constexpr double kLeastJitter = 0x1p-22;
// Extra plain runs for a tensor that exceeds its bound. Beyond this multiple of the bound two are
// enough, since noise hardly ever explains so much.
constexpr int kDraws = 8, kFewDraws = 2;
constexpr double kBlatant = 1024;

double worst_of_kind(const Errors& errors, TensorKey::Kind kind) {
  double worst = 0;
  for (const auto& [key, error] : errors) {
    if (key.kind == kind && std::isfinite(error)) worst = std::max(worst, error);
  }
  return worst;
}

// The relative distance of two neighbouring numbers of a scheme's narrowest floating type; 0 where
// nothing is narrower than float32.
double narrowest_unit(const Scheme& scheme) {
  double unit = 0;
  for (const Object& object : scheme.objects) {
    if (object.type.dtype == Dtype::kBF16) unit = std::max(unit, 0x1p-7);
    if (object.type.dtype == Dtype::kF16) unit = std::max(unit, 0x1p-10);
    // Codes of a state: the next level is a tenth away at most, and a tie falls either way.
    const bool codes = object.role == Role::kState && object.type.dtype == Dtype::kU8;
    if (codes) unit = std::max(unit, 0x1p-7);
  }
  return unit;
}

// The choices that a reference repeats are part of its identity.
std::string choices_of(const Trace& run) {
  std::string choices;
  for (const auto& step : run.choices) {
    for (const auto& [source, numbers] : step) {
      for (const double n : numbers) choices += std::to_string(static_cast<int64_t>(n)) + ",";
    }
  }
  return choices;
}

// The error that noise explains for a tensor, given the errors of plain runs.
double base_of(const TensorKey& key, const Errors& plain, const Errors& own) {
  const auto found = plain.find(key);
  // A single number may be right by chance, so metrics get the largest error of all metrics.
  const bool alone = found == plain.end() || key.kind == TensorKey::Kind::kMetric;
  double base = alone ? worst_of_kind(plain, key.kind) : found->second;
  // A norm may be off by as much as the gradients that it is the norm of.
  if (key.source == "norm") {
    base = std::max(base, worst_of_kind(plain, TensorKey::Kind::kGradient));
  }
  const auto mine = own.find(key);
  if (mine != own.end()) base = std::max(base, mine->second);
  return base;
}

// The error as a share of its bound; above 1 the law is broken.
double share_of(const TensorKey& key, double error, const Errors& plain, const Errors& own) {
  if (std::isnan(error)) return INFINITY;
  return error / (kAllowedTimes * std::max(base_of(key, plain, own), kFloor));
}

// A text that identifies a stack: every functor that acts, with its arguments, defaults too. A
// functor for a GPU acts on a CPU only where it is named.
std::string identity(const Stack& stack, Target target) {
  std::vector<std::string> parts;
  for (const StackedFunctor& f : stack.functors) {
    if (!is_idle(f, target)) parts.push_back(f.print());
  }
  return join(parts, " | ");
}

}  // namespace

void forget_judged(Verdict& verdict) {
  std::erase_if(verdict.too_noisy, [&](const auto& e) { return verdict.judged.count(e.first); });
}

BuiltStep build(const Subject& subject, const Stack& stack) {
  return subject.evaluation ? build_evaluation(subject.forward, stack, subject.options)
                            : build_step(subject.forward, stack, subject.options);
}

Judge::Judge(Subject subject)
    : subject_(std::move(subject)), ranges_(input_ranges(subject_.forward)) {
  subject_.options.on_mesh = true;
  for (const auto& [path, marks] : subject_.marks) ranges_[path].marks = marks;
}

const BuiltStep& Judge::built(const Stack& stack) {
  const std::string key = identity(stack, subject_.target);
  const auto found = built_.find(key);
  if (found != built_.end()) return found->second;
  return built_.emplace(key, build(subject_, stack)).first->second;
}

Scheme Judge::scheme_for(const Stack& stack, Kind kind) {
  const Scheme& step = built(stack).scheme;
  if (kind == Kind::kRun) return step;
  if (kind == Kind::kRounded) return to_rounded_reference(step);
  return to_reference(kind == Kind::kUnrounded ? without_narrow(step) : step);
}

// Runs of all seeds are made together, so that the step is planned and prepared once.
const Trace& Judge::trace(const Stack& stack, uint64_t seed, Kind kind, const Stack* replayed) {
  if (kind == Kind::kUnrounded && !has_narrow(built(stack).scheme)) kind = Kind::kReference;
  const std::string name = identity(stack, subject_.target);
  const auto kept = [&](uint64_t of) -> std::unique_ptr<Trace>& {
    return traces_[{name, of, kind, replayed ? choices_of(trace(*replayed, of, Kind::kRun)) : ""}];
  };
  if (!kept(seed)) {
    TraceOptions options{.steps = subject_.steps,
                         .reference = kind != Kind::kRun,
                         .target = subject_.target,
                         .counted = subject_.counted};
    Tracer tracer(scheme_for(stack, kind), ranges_, options, &drawn_);
    for (const uint64_t each : subject_.seeds) {
      options.seed = each;
      options.replayed = replayed ? &trace(*replayed, each, Kind::kRun) : nullptr;
      std::unique_ptr<Trace>& place = kept(each);
      if (!place) place = std::make_unique<Trace>(tracer.trace(options));
    }
  }
  return *kept(seed);
}

// The functors that determine which function a stack computes; all others keep it.
Stack Judge::function_of(const Stack& stack) {
  Stack function = stack;
  std::erase_if(function.functors,
                [](const StackedFunctor& f) { return f.functor.law != Law::kApproximating; });
  try {
    built(function);
    return function;
  } catch (const Error&) {  // one of them needs another functor
    return stack;
  }
}

const Errors& Judge::errors_between(const Trace& run, const Trace& reference) {
  const auto [kept, fresh] = errors_.try_emplace({&run, &reference});
  if (fresh) kept->second = errors_against(run, reference);
  return kept->second;
}

Judge::Measured Judge::measure(Law law, const Stack& with, const Stack& rest, uint64_t seed) {
  const Trace& run = trace(with, seed, Kind::kRun);
  const Trace& plain = trace(rest, seed, Kind::kRun);
  if (law == Law::kReassociating) {
    const Stack function = function_of(rest);
    return {errors_between(run, trace(function, seed, Kind::kUnrounded, &with)),
            errors_between(plain, trace(function, seed, Kind::kUnrounded, &rest))};
  }
  const Stack function = function_of(with);
  const Trace& without_it = trace(function_of(rest), seed, Kind::kReference, &rest);
  Measured measured{errors_between(run, trace(function, seed, Kind::kReference, &with)),
                    errors_between(plain, without_it), moved_from(run, without_it)};
  const bool close = std::all_of(measured.with.begin(), measured.with.end(), [&](const auto& e) {
    const auto found = measured.rest.find(e.first);
    const double base = found == measured.rest.end() ? 0 : found->second;
    return e.second <= kAllowedTimes * std::max(base, kFloor);
  });
  if (close) return measured;
  raise(measured.rest, moved_by_jitter(function, seed, with));
  raise(measured.rest, errors_between(trace(function, seed, Kind::kRounded, &with),
                                      trace(function, seed, Kind::kReference, &with)));
  return measured;
}

const Errors& Judge::moved_by_jitter(const Stack& function, uint64_t seed, const Stack& of) {
  const Trace& run = trace(of, seed, Kind::kRun);
  auto [kept, fresh] =
      moved_.try_emplace({identity(function, subject_.target), seed, choices_of(run)});
  Errors& moved = kept->second;
  if (!fresh) return moved;
  const Trace& reference = trace(function, seed, Kind::kReference, &of);
  const double unit = narrowest_unit(built(function).scheme);
  TraceOptions options{.seed = seed,
                       .steps = subject_.steps,
                       .reference = true,
                       .replayed = &run,
                       .counted = subject_.counted};
  Tracer tracer(scheme_for(function, Kind::kReference), ranges_, options, &drawn_);
  const auto moved_by = [&](double jitter) {
    options.jitter = jitter;
    return errors_against(tracer.trace(options), reference);
  };
  moved = moved_by(kLeastJitter);
  if (unit == 0) return moved;
  for (double jitter = 2 * kLeastJitter; jitter <= unit; jitter *= 2) {
    if (worst_of_kind(moved, TensorKey::Kind::kGradient) > unit / 2) break;
    moved = moved_by(jitter);
  }
  // A state of one number, as a loss scale, jumps: it says nothing of others.
  const auto jumps = [&](const auto& entry) {
    return entry.first.kind == TensorKey::Kind::kState &&
           reference.tensors.at(entry.first).size() == 1;
  };
  Errors one_by_one = moved;
  std::erase_if(one_by_one, jumps);
  for (auto& entry : moved) {
    if (!jumps(entry)) entry.second = worst_of_kind(one_by_one, entry.first.kind);
  }
  return moved;
}

// Repeats the run of a stack, with the same choices, from parameters perturbed by about a unit in
// the last place. Prepared on first use, since most stacks never need it.
class Judge::Jittered {
 public:
  Jittered(Judge& judge, const Stack& stack) : judge_(judge), stack_(stack) {}

  Trace trace(uint64_t seed, int draw) {
    const Scheme& scheme = judge_.built(stack_).scheme;
    const TraceOptions options{.seed = seed,
                               .steps = judge_.subject_.steps,
                               .target = judge_.subject_.target,
                               .replayed = &judge_.trace(stack_, seed, Kind::kRun),
                               .jitter = std::max(0x1p-23, narrowest_unit(scheme) / 2),
                               .draw = draw,
                               .counted = judge_.subject_.counted};
    if (!tracer_) tracer_.emplace(scheme, judge_.ranges_, options, &judge_.drawn_);
    return tracer_->trace(options);
  }

 private:
  Judge& judge_;
  const Stack& stack_;
  std::optional<Tracer> tracer_;
};

// The errors of such a run without the functor, against the reference with unperturbed parameters.
Errors Judge::plain_spread(Law law, const Stack& rest, uint64_t seed, Jittered& runs, int draw) {
  const Kind kind = law == Law::kReassociating ? Kind::kUnrounded : Kind::kReference;
  const Trace& reference = trace(function_of(rest), seed, kind, &rest);
  return errors_against(runs.trace(seed, draw), reference);
}

// How far the stack itself moves when its parameters are perturbed. A mistake is in both runs, so
// this measures noise alone.
Errors Judge::own_spread(const Stack& with, uint64_t seed, Jittered& runs, int draw) {
  return errors_against(runs.trace(seed, draw), trace(with, seed, Kind::kRun));
}

void Judge::judge_errors(Verdict& verdict, const Stack& with, const Stack& rest) {
  Errors errors, plain, own;
  std::map<TensorKey, uint64_t> seed_of;
  std::map<TensorKey, size_t> tensor_sizes;
  for (const uint64_t seed : subject_.seeds) {
    const Measured measured = measure(verdict.law, with, rest, seed);
    for (const auto& [key, error] : measured.with) {
      tensor_sizes[key] = trace(with, seed, Kind::kRun).tensors.at(key).size();
      const auto found = errors.find(key);
      if (found == errors.end() || !(error <= found->second)) seed_of[key] = seed;
    }
    if (!is_finite_somewhere(trace(with, seed, Kind::kRun))) {
      verdict.ok = false;
      verdict.error = INFINITY;
      verdict.tensor = subject_.evaluation ? "the loss" : "the norm of every step";
      verdict.seed = seed;
      return;
    }
    raise(errors, measured.with);
    raise(plain, measured.rest);
    if (measured.moved && !verdict.moved) verdict.moved.emplace();
    if (measured.moved) raise(*verdict.moved, *measured.moved);
  }
  Jittered plain_runs(*this, rest), own_runs(*this, with);
  for (int draw = 1; draw <= kDraws; ++draw) {
    std::set<uint64_t> doubtful;
    double worst = 0;
    for (const auto& [key, error] : errors) {
      const double share = share_of(key, error, plain, own);
      if (share > 1) doubtful.insert(seed_of[key]);
      worst = std::max(worst, share);
    }
    if (doubtful.empty() || (draw > kFewDraws && worst > kBlatant)) break;
    for (const uint64_t seed : doubtful) {
      raise(plain, plain_spread(verdict.law, rest, seed, plain_runs, draw));
      if (verdict.law == Law::kApproximating) raise(own, own_spread(with, seed, own_runs, draw));
    }
  }
  double nearest = -1;
  std::optional<TensorKey> first_broken;  // the earliest
  for (const auto& [key, error] : errors) {
    const double base = base_of(key, plain, own), allowed = kAllowedTimes * std::max(base, kFloor);
    const double share = share_of(key, error, plain, own);
    if (share > 1 && (!first_broken || key.step < first_broken->step)) first_broken = key;
    const TensorKey of_any_step{key.kind, key.source, 0};
    const bool jumps = key.kind == TensorKey::Kind::kState && tensor_sizes.at(key) == 1;
    if (allowed <= kTooNoisy || share > 1 || jumps) {
      verdict.judged.insert(of_any_step);
    } else {
      double& most = verdict.too_noisy[of_any_step];
      most = std::max(most, allowed);
    }
    if (share <= nearest) continue;
    nearest = share;
    verdict.error = error, verdict.plain_error = base, verdict.allowed = allowed;
    verdict.tensor = to_string(key);
  }
  forget_judged(verdict);
  verdict.narrow = !verdict.too_noisy.empty() && has_narrow(built(with).scheme);
  if (!first_broken) return;
  verdict.ok = false;
  verdict.seed = seed_of[*first_broken], verdict.step = first_broken->step;
}

void Judge::judge_bits(Verdict& verdict, const Stack& with, const Stack& rest) {
  for (const uint64_t seed : subject_.seeds) {
    const Errors differences =
        bit_differences(trace(with, seed, Kind::kRun), trace(rest, seed, Kind::kRun));
    for (const auto& [key, error] : differences) {
      // Reports the earliest step, and in it the largest difference.
      if (!verdict.ok && (seed != verdict.seed || key.step > verdict.step ||
                          (key.step == verdict.step && error <= verdict.error))) {
        continue;
      }
      verdict.ok = false;
      verdict.error = error, verdict.tensor = to_string(key);
      verdict.seed = seed, verdict.step = key.step;
    }
  }
}

Verdict Judge::judge(const Stack& stack, size_t index) {
  const Applied& applied = built(stack).applied[index];
  Verdict verdict{.functor = applied.name,
                  .law = applied.law,
                  .against = applied.against,
                  .by_default = applied.by_default,
                  .matches = applied.matches,
                  .note = join(applied.idle_rules, "; ")};
  Stack rest = compared_with(stack, index);
  try {
    built(rest);
  } catch (const Error& e) {
    // A functor that another one needs cannot be left out alone. The stack is then compared with
    // its own reference, and four times the plain step's error is allowed.
    verdict.note = "cannot be left out alone (" + std::string(e.what()) + ")";
    if (verdict.law != Law::kApproximating) verdict.note += "; judged by its own reference";
    verdict.law = Law::kApproximating;
    verdict.against.clear();
    rest = parse_stack("");
  }
  if (built(stack).scheme == built(rest).scheme) return verdict;  // the functor changed nothing
  if (verdict.law == Law::kExact) {
    judge_bits(verdict, stack, rest);
  } else {
    judge_errors(verdict, stack, rest);
  }
  return verdict;
}

double Judge::largest_error(const Stack& stack) {
  double largest = 0;
  const bool narrow = has_narrow(built(stack).scheme);
  const Stack judge = function_of(stack);
  for (const uint64_t seed : subject_.seeds) {
    const Trace& run = trace(stack, seed, Kind::kRun);
    const Trace& reference =
        trace(judge, seed, narrow ? Kind::kReference : Kind::kUnrounded, &stack);
    largest = std::max(largest,
                       worst_of_kind(errors_between(run, reference), TensorKey::Kind::kGradient));
  }
  return largest;
}

Moved Judge::moved_by(const Stack& stack) {
  const Stack plain = parse_stack(""), function = function_of(plain);
  Moved moved;
  for (const uint64_t seed : subject_.seeds) {
    raise(moved, moved_from(trace(stack, seed, Kind::kRun),
                            trace(function, seed, Kind::kReference, &plain)));
  }
  return moved;
}

void Judge::forget(const Stack& stack) {
  const std::string gone = identity(stack, subject_.target);
  errors_.clear();
  std::erase_if(traces_, [&](const auto& entry) { return std::get<0>(entry.first) == gone; });
  built_.erase(gone);
}

void Judge::forget_all_but(const Stack& stack) {
  std::set<std::string> kept;
  for (const Stack& each : {stack, parse_stack("")}) {
    kept.insert({identity(each, subject_.target), identity(function_of(each), subject_.target)});
  }
  std::set<const Trace*> gone;
  for (const auto& [key, trace] : traces_) {
    if (!kept.count(std::get<0>(key))) gone.insert(trace.get());
  }
  std::erase_if(errors_, [&](const auto& entry) {
    return gone.count(entry.first.first) || gone.count(entry.first.second);
  });
  std::erase_if(traces_, [&](const auto& entry) { return gone.count(entry.second.get()); });
  std::erase_if(built_, [&](const auto& entry) { return !kept.count(entry.first); });
}

}  // namespace adjoint
