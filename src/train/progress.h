// A progress bar of one line, on a terminal only. By hand: it is shorter than a library's set-up.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace adjoint {

class Progress {
 public:
  // A total of 0: unknown. Of several that do the same work only one is to be `seen`.
  Progress(int64_t total, int64_t done, bool seen = true);
  ~Progress();
  // Redraws at most ten times a second. `note` is shown behind the bar: a loss, a rate.
  void show(int64_t done, const std::string& note);
  // Clears the line, so that something else can be printed.
  void clear();
  double seconds() const;

 private:
  int64_t total_, began_with_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point began_, last_;
};

std::string human_time(double seconds);  // 3m 20s

}  // namespace adjoint
