// The learning rate of every step, a pure function of the step's number.
#pragma once
#include "train/config.h"

namespace adjoint {

struct Schedule {
  explicit Schedule(const TrainConfig& config);

  // Of step `step`, counted from 0: warm-up grows linearly to `peak`, then the schedule's own shape
  // leads to `last` at the end.
  double rate(int64_t step) const;

  std::string shape;
  int64_t steps, warmup, cooldown;
  double peak, last;
};

}  // namespace adjoint
