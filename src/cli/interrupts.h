// Ctrl-C, a batch system's end and a lost terminal, taken by a thread that does nothing else, and
// answered at once, whatever the others are doing. No handler may run on a thread that computes:
// oneDNN's kernels use the stack pointer as one more register, and a signal's frame would be
// written wherever it points.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace adjoint {

// What is told when a signal asks to stop, and when a second one ends the process.
struct Answers {
  std::function<std::string()> first = {};
  std::string second = {};
};

class Interrupts {
 public:
  // Before any other thread is made: they inherit that these signals are not theirs. `more` signals
  // ask to stop as Ctrl-C does.
  explicit Interrupts(std::vector<int> more = {});
  ~Interrupts();

  // Until now a signal ended the process at once; from now on it asks to stop, and a second one
  // more than a second later ends at once.
  void ask_from_now_on(Answers answers = {});
  // What was asked is done, and a signal ends the process at once again.
  void end_from_now_on() { asks_ = false, stop_ = false; }
  const std::atomic<bool>& stop() const { return stop_; }
  // Nothing is told by this process: of several ranks the first one tells, and a conversation tells
  // by ending.
  static void be_silent() { silent_ = true; }
  // A launcher ends all ranks as soon as one has ended. One that has said why and does nothing any
  // more is not interrupted by that.
  static void be_ended_by_a_launcher() { launched_ = true; }

 private:
  void listen();
  void tell(const std::string& text) const;
  std::vector<int> more_;
  Answers answers() {
    const std::scoped_lock lock(mutex_);
    return answers_;
  }
  std::mutex mutex_;
  Answers answers_;
  std::atomic<bool> asks_ = false, stop_ = false, over_ = false;
  static inline std::atomic<bool> silent_ = false, launched_ = false;
  std::thread listener_;
};

// Of ranks that are processes the first one tells: progress, notes, and answers to signals.
void let_first_rank_tell(int rank);

}  // namespace adjoint
