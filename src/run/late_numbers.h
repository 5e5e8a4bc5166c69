// Reads numbers that steps return, such as the loss or tokens that were drawn. On a GPU they are
// read a step later, so that the host never waits for the step that it has just begun; on a CPU at
// once.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "run/run.h"

namespace adjoint {

class LateNumbers {
 public:
  LateNumbers(Run& run, std::vector<Value> which);

  void note();  // the numbers of the step that was begun last
  // The oldest numbers that were noted and not taken, those of each object behind one another;
  // waits for their step only.
  std::vector<double> take();
  size_t waiting() const { return noted_ - taken_; }
  // How many steps may be noted and not taken without making the host wait.
  size_t lag() const { return run_.on_gpu() ? kPlaces - 1 : 0; }

 private:
  static constexpr size_t kPlaces = 2;

  Run& run_;
  std::vector<Value> which_;
  std::deque<std::vector<double>> there_;  // on a CPU
  Buffer places_;                          // pinned: `kPlaces` times all numbers
  Bytes size_ = {0};                       // of all numbers
  std::unique_ptr<GpuClock> clock_;
  size_t noted_ = 0, taken_ = 0;
};

}  // namespace adjoint
