// Tells how far some work is, to whoever waits for it (base/activity.h).
#pragma once
#include <string>

#include "base/activity.h"

namespace adjoint {

class LateProgress {
 public:
  explicit LateProgress(std::string what) : activity_(std::move(what)) {}
  // A callback for progress: done, of how much, and what is being counted.
  auto told() {
    return
        [this](int64_t done, int64_t of, const std::string& what) { activity_.at(done, of, what); };
  }

 private:
  Activity activity_;
};

}  // namespace adjoint
