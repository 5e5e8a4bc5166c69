#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace adjoint {

using Clock = std::chrono::steady_clock;

Progress::Progress(int64_t total, int64_t done, bool seen)
    : total_(total),
      began_with_(done),
      terminal_(seen && ::isatty(2)),
      began_(Clock::now()),
      last_(began_) {}

Progress::~Progress() { clear(); }

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

std::string human_time(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}h {:02}m", s / 3600, s / 60 % 60);
}

void Progress::show(int64_t done, const std::string& note) {
  const auto now = Clock::now();
  if (!terminal_ ||
      (drawn_ && (total_ <= 0 || done < total_) && now - last_ < std::chrono::milliseconds(100))) {
    return;
  }
  last_ = now;
  drawn_ = true;
  if (total_ <= 0) {  // the total is unknown
    std::fprintf(stderr, "\r\033[K%ld %s, %s", static_cast<long>(done), note.c_str(),
                 human_time(seconds()).c_str());
    std::fflush(stderr);
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(kWidth * done / std::max<int64_t>(1, total_));
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "━" : "─";
  const double per_item = seconds() / static_cast<double>(std::max<int64_t>(1, done - began_with_));
  std::fprintf(stderr, "\r\033[K%s %ld/%ld  %s  %s left", bar.c_str(), static_cast<long>(done),
               static_cast<long>(total_), note.c_str(),
               human_time(per_item * static_cast<double>(total_ - done)).c_str());
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace adjoint
