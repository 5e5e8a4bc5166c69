// How many tokens a second a run trains on: by the time of its steps, without what lies between
// them (evaluations, saves), and without its first step, which also prepares what later ones find.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

namespace adjoint {

class StepRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit StepRate(double tokens_per_step) : tokens_(tokens_per_step) {}

  // Steps run from now on, after a beginning or after something else.
  void begin(Time now) { last_ = now; }
  // One more step is done.
  void done(Time now) {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (first_ < 0) {
      first_ = seconds;
      return;
    }
    seconds_ += seconds;
    ++steps_;
  }

  // Of the steps since the last `take`; where there are none, as it was before; of the first step
  // alone by its own time. None: no step is done.
  std::optional<double> per_second() const {
    if (steps_ > 0 && seconds_ > 0) return tokens_ * static_cast<double>(steps_) / seconds_;
    if (before_ > 0) return before_;
    return first_ > 0 ? std::optional(tokens_ / first_) : std::nullopt;
  }
  // The same, and steps are counted anew.
  std::optional<double> take() {
    const std::optional<double> rate = per_second();
    if (steps_ > 0) before_ = rate.value_or(0);
    steps_ = 0;
    seconds_ = 0;
    return rate;
  }

 private:
  double tokens_;
  Time last_ = {};
  double first_ = -1;  // seconds of the first step; -1: none is done
  double before_ = 0;  // an earlier rate; 0: none
  int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace adjoint
