#include "comm/at_work.h"

#include <sys/resource.h>

#include <chrono>
#include <fstream>

namespace adjoint {

namespace {

constexpr std::chrono::seconds kLook{2};
constexpr double kLeastSeconds = 0.02;  // of a processor between two looks: less is our own looking
constexpr int64_t kLeastBytes = 1 << 16;

struct Effort {
  double seconds = 0;  // of processors
  int64_t bytes = 0;   // read and written, by any system call
};

Effort effort_so_far() {
  Effort effort;
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
    effort.seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  std::ifstream io("/proc/self/io");
  std::string name;
  for (int64_t count = 0; io >> name >> count;) {
    if (name == "rchar:" || name == "wchar:") effort.bytes += count;
  }
  return effort;
}

}  // namespace

AtWork::AtWork(const std::optional<Communicator>& world, int64_t step, std::string what) {
  if (!world) return;
  world->progress(step, what);
  thread_ = std::thread([this, world = *world, step, what = std::move(what)] {
    Effort before = effort_so_far();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLook, [&] { return over_; })) {
      const Effort now = effort_so_far();
      if (now.seconds - before.seconds > kLeastSeconds || now.bytes - before.bytes > kLeastBytes) {
        world.progress(step, what);
      }
      before = now;
    }
  });
}

AtWork::~AtWork() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace adjoint
