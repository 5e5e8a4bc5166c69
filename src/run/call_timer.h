// Seconds of every call of one step, summed over its executions: by the host's clock, or by marks
// on the GPU's stream.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "device/gpu.h"

namespace adjoint {

class CallTimer {
 public:
  // On a GPU, of so many executions in all.
  CallTimer(size_t calls, size_t executions, GpuStream* stream);
  void after(int at);          // the call at this place in the order has run, or is on its way
  std::vector<double> sums();  // by place in the order, once all have run

 private:
  std::vector<double> sums_;
  GpuStream* stream_;
  std::optional<GpuClock> clock_;
  std::vector<int> ran_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace adjoint
