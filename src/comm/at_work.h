// Work that says nothing of itself while it lasts (planning, reading, hashing, writing) is progress
// as long as the process computes or moves bytes: while this lives, a thread looks, and tells the
// watchdog (comm/watchdog.h). A process that hangs, in a disk that is gone or in a deadlock, is
// silent.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace adjoint {

class AtWork {
 public:
  // `step` -1: before the first one. Without a world nobody watches.
  AtWork(const std::optional<Communicator>& world, int64_t step, std::string what);
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace adjoint
