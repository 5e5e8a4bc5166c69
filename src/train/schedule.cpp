#include "train/schedule.h"

#include <algorithm>
#include <cmath>

namespace adjoint {

RateSchedule::RateSchedule(const TrainConfig& c) : shape(c.schedule), steps(c.steps) {
  // A batch k times as large: k times the rate (Goyal et al., 2017), or sqrt(k) for Adam, whose
  // step does not grow with the gradient (Malladi et al., 2022).
  const double ratio = static_cast<double>(c.batch) / static_cast<double>(c.base_batch);
  const double scale = c.lr_scaling == "linear" ? ratio
                       : c.lr_scaling == "sqrt" ? std::sqrt(ratio)
                                                : 1;
  peak = c.lr * scale;
  last = c.min_lr < 0 ? peak / 10 : c.min_lr;
  warmup = c.warmup < 0 ? std::min<int64_t>(100, steps / 20) : std::min(c.warmup, steps);
  cooldown = static_cast<int64_t>(std::llround(c.cooldown * static_cast<double>(steps)));
}

double RateSchedule::rate(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (shape == "constant") return peak;
  if (shape == "wsd") {
    const int64_t left = steps - 1 - step;  // behind this one
    if (left >= cooldown) return peak;
    return last + (peak - last) * static_cast<double>(left) / static_cast<double>(cooldown);
  }
  const int64_t falls = std::max<int64_t>(1, steps - 1 - warmup);
  const double done =
      std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(falls));
  return last + (peak - last) * 0.5 * (1 + std::cos(done * M_PI));
}

}  // namespace adjoint
