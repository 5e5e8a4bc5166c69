// Draws a progress bar once the work has taken two seconds.
#pragma once
#include <optional>

#include "train/progress.h"

namespace adjoint {

class LateProgress {
 public:
  // A callback for progress: done, of how much, and what is being done.
  auto told() {
    return [this](int64_t done, int64_t of, const std::string& what) {
      if (!bar_ || of != of_) bar_.emplace(of_ = of, 0);  // another phase of the work
      if (since_.seconds() > 2) bar_->show(done, what);
    };
  }

 private:
  Progress since_{1, 0};
  std::optional<Progress> bar_;
  int64_t of_ = 0;
};

}  // namespace adjoint
