// Runs one job at a time on a thread of its own, at the lowest priority: the caller's threads go
// on. What a job throws is thrown by the next call here, so no failure is lost. std::async would
// do, but knows no priorities.
#pragma once
#include <functional>
#include <future>

namespace adjoint {

class Background {
 public:
  Background() = default;
  ~Background() = default;  // waits for the job; what it throws then is lost
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void start(std::function<void()> job);  // after the previous job
  void wait();                            // until nothing runs
  void check();                           // the same for a job that has ended; never waits

 private:
  std::future<void> running_;
};

}  // namespace adjoint
