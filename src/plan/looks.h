// Stacks of one model that a search has built, planned and timed, each once, on all cores. A search
// sees a stack as a FitPoint; only the steps that it reads numbers off are kept.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "functors/pipeline.h"
#include "plan/plan.h"
#include "plan/timing.h"

namespace adjoint {

struct FitPoint;

struct FitOptions {
  StepOptions step = {};  // its stack is kept, and what is chosen is added to it
  Costs costs = {};
  PlanOptions plan = {};
  bool may_approximate = false;  // precision may be chosen, too
  int64_t batch = 1;             // samples, which may be split into parts
  // Called with each stack that was planned, one call at a time.
  std::function<void(const FitPoint&)> say = nullptr;
  // Asked before each plan, by several threads: whether the search is to end with the best that it
  // knows. nullptr: it ends when there is nothing left to try.
  std::function<bool()> enough = nullptr;
};

// Thrown through a search whose options say that it is enough.
struct CutOff {};

// A stack that was built, planned and timed. On a mesh bytes, seconds and FLOPs are those of each
// rank, and so is the budget; of stages they are the most that one has, and the seconds those of
// the whole step.
struct FitPoint {
  std::string stack = {};
  int ranks = 1;
  Bytes peak = {0}, host = {0};
  double seconds = 0;
  double flops = 0, recomputed_flops = 0;
};

// A step with its plan and its time; of a pipeline that of its largest stage (staged.h).
struct TimedStep {
  Scheme scheme;
  Plan plan;
  StepTime time;
  Bytes host = {0};  // of the stage that has most there
};

// Calls body(i) for all i below count, on the cores that parallel_for uses. Of several exceptions
// the first i's is thrown.
void on_all_cores(size_t count, const std::function<void(size_t)>& body);

class Looks {
 public:
  Looks(Scheme forward, FitOptions options);

  // Safe to call from several threads, and so is `build`. Nothing where the stack is refused. Both
  // throw CutOff instead of planning where the options say that it is enough.
  std::optional<FitPoint> at(const std::string& stack);
  // The same, and the step itself; throws where the stack is refused.
  TimedStep build(const std::string& stack);

  FitPoint point_of(const std::string& stack, const TimedStep& step) const;
  Scheme said(const std::string& stack);  // as said_step

  // The point, after this thread has built, verified and planned the stack once more, from the
  // model on, with the same result.
  FitPoint confirmed(const FitPoint& point);

  // All legal stacks that have been planned, sorted by their texts.
  std::vector<FitPoint> all() const;

  const Scheme& forward() const { return forward_; }
  const FitOptions& options() const { return options_; }
  bool cut_off() const { return cut_off_; }

 private:
  using Found = std::optional<FitPoint>;
  TimedStep planned(Scheme scheme, const PlanOptions& options) const;
  TimedStep build_now(const std::string& stack);
  void check_enough();

  Scheme forward_;
  FitOptions options_;
  StepBuilder builder_;
  mutable std::mutex mutex_;
  std::atomic<bool> cut_off_ = false;
  std::map<std::string, std::shared_future<Found>> found_;
  std::set<std::string> confirmed_;
};

}  // namespace adjoint
