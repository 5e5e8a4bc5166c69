// Draws a progress bar once the work has taken two seconds.
#pragma once
#include <optional>

#include "train/progress.h"

namespace adjoint {

class Patience {
 public:
  // How much of how much is done, and what is being done.
  auto told() {
    return [this](int64_t done, int64_t of, const std::string& what) {
      if (!bar_) bar_.emplace(of, 0);
      if (since_.seconds() > 2) bar_->show(done, what);
    };
  }

 private:
  Progress since_{1, 0};
  std::optional<Progress> bar_;
};

}  // namespace adjoint
