// The learning rate of every step, a pure function of the step's number.
#pragma once
#include "train/config.h"

namespace adjoint {

struct RateSchedule {
  explicit RateSchedule(const TrainConfig& config);

  // The rate of step `step`, counted from 0: it grows linearly to `peak` during warm-up, then
  // follows the schedule's shape to `last`, which the run's last step has.
  double rate(int64_t step) const;

  std::string shape;
  int64_t steps, warmup, cooldown;
  double peak, last;
};

}  // namespace adjoint
