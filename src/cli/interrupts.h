// Ctrl-C, a batch system's end and a lost terminal, taken by a thread that does nothing else. No
// handler may run on a thread that computes: oneDNN's kernels use the stack pointer as one more
// register, and a signal's frame would be written wherever it points.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

namespace adjoint {

class Interrupts {
 public:
  // Before any other thread is made: they inherit that these signals are not theirs. `more` signals
  // ask to stop as Ctrl-C does.
  explicit Interrupts(std::vector<int> more = {});
  ~Interrupts();

  // Until now a signal ended the process at once; from now on it asks to stop, and a second one
  // more than a second later ends at once.
  void ask_from_now_on() { asks_ = true; }
  // What was asked is done, and a signal ends the process at once again.
  void end_from_now_on() { asks_ = false, stop_ = false; }
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void listen();
  std::vector<int> more_;
  std::atomic<bool> asks_ = false, stop_ = false, over_ = false;
  std::thread listener_;
};

}  // namespace adjoint
