#include "run/call_timer.h"

namespace adjoint {

CallTimer::CallTimer(size_t calls, size_t executions, GpuStream* stream)
    : sums_(calls), stream_(stream) {
  if (stream_) {
    clock_.emplace(executions + 1);
    clock_->mark(0, *stream_);
  }
  last_ = std::chrono::steady_clock::now();
}

void CallTimer::after(int at) {
  if (stream_) {
    clock_->mark(ran_.size() + 1, *stream_);
    ran_.push_back(at);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  sums_[at] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

std::vector<double> CallTimer::sums() {
  for (size_t i = 0; i < ran_.size(); ++i) sums_[ran_[i]] += clock_->seconds(i, i + 1);
  return sums_;
}

}  // namespace adjoint
