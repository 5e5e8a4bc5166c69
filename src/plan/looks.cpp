#include "plan/looks.h"

#include <atomic>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "functors/stage_schedule.h"
#include "plan/staged.h"

namespace adjoint {

namespace {

StepOptions in_a_search(StepOptions step) {
  step.verify_each = false;
  return step;
}

PlanOptions in_a_search(PlanOptions plan) {
  plan.verify = false;
  return plan;
}

}  // namespace

void on_all_cores(size_t count, const std::function<void(size_t)>& body) {
  // Stacks differ in what they take to plan, so each worker takes the next one.
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failed(count);  // no exception may leave a parallel region
  const auto cores = static_cast<size_t>(available_processors());
  const auto workers = static_cast<int64_t>(std::min(cores, count));
  parallel_for(workers, 1, [&](int64_t, int64_t, int) {
    for (size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& e : failed) {
    if (e) std::rethrow_exception(e);
  }
}

Looks::Looks(Scheme forward, FitOptions options)
    : forward_(std::move(forward)),
      options_(std::move(options)),
      builder_(forward_, in_a_search(options_.step)) {}

TimedStep Looks::planned(Scheme scheme, const PlanOptions& options) const {
  if (has_stages(scheme)) return timed_stages(scheme, options, options_.costs);
  TimedStep step{.scheme = std::move(scheme), .plan = {}, .time = {}};
  step.plan = make_plan(step.scheme, options);
  step.time = predict_time(step.scheme, step.plan, options_.costs);
  step.host = step.plan.host.size;
  return step;
}

// Seconds are rounded to picoseconds, so that the same calls in another order take the same time.
FitPoint Looks::point_of(const std::string& stack, const TimedStep& step) const {
  return {.stack = stack,
          .ranks = num_ranks(step.scheme.mesh),
          .peak = step.plan.footprint(),
          .host = step.host,
          .seconds = std::round(step.time.step * 1e12) / 1e12,
          .flops = step.time.flops,
          .recomputed_flops = step.time.recomputed_flops};
}

// The first plan is always made: there is something to answer with.
void Looks::check_enough() {
  if (!options_.enough) return;
  {
    const std::lock_guard lock(mutex_);
    if (found_.empty()) return;
  }
  if (!cut_off_ && options_.enough()) cut_off_ = true;
  if (cut_off_) throw CutOff{};
}

TimedStep Looks::build(const std::string& stack) {
  check_enough();
  return build_now(stack);
}

TimedStep Looks::build_now(const std::string& stack) {
  TimedStep step = planned(builder_.build(parse_stack(stack)).scheme, in_a_search(options_.plan));
  const std::lock_guard lock(mutex_);
  const FitPoint point = point_of(stack, step);
  if (options_.say) options_.say(point);
  if (!found_.count(stack)) {
    std::promise<Found> known;
    known.set_value(point);
    found_.emplace(stack, known.get_future().share());
  }
  return step;
}

Scheme Looks::said(const std::string& stack) { return builder_.said(parse_stack(stack)); }

std::optional<FitPoint> Looks::at(const std::string& stack) {
  std::promise<Found> mine;
  std::shared_future<Found> others;
  {
    const std::lock_guard lock(mutex_);
    const auto known = found_.find(stack);
    if (known != found_.end()) others = known->second;
  }
  if (!others.valid()) {
    check_enough();
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = found_.emplace(stack, std::shared_future<Found>());
    if (is_new) known->second = mine.get_future().share();
    if (!is_new) others = known->second;
  }
  if (others.valid())
    return others.get();  // no deadlock: the thread that began it waits for no other
  Found found;
  try {
    found = point_of(stack, build_now(stack));
  } catch (const Error&) {
    found = std::nullopt;
  } catch (...) {
    mine.set_exception(std::current_exception());
    throw;
  }
  mine.set_value(found);
  return found;
}

FitPoint Looks::confirmed(const FitPoint& point) {
  if (!confirmed_.insert(point.stack).second) return point;
  StepOptions step = options_.step;
  step.stack = point.stack;
  const FitPoint again =
      point_of(point.stack,
               planned(build_step(forward_, parse_stack(point.stack), step).scheme, options_.plan));
  CHECK(again.peak == point.peak && again.host == point.host && again.seconds == point.seconds,
        "a stack plans to the same bytes and seconds again: " + point.stack);
  return again;
}

std::vector<FitPoint> Looks::all() const {
  std::vector<FitPoint> points;
  const std::lock_guard lock(mutex_);
  for (const auto& [stack, found] : found_) {
    if (const Found& point = found.get()) points.push_back(*point);
  }
  return points;
}

}  // namespace adjoint
