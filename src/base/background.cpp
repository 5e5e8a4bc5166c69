#include "base/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>

namespace adjoint {

void Background::start(std::function<void()> job) {
  wait();
  running_ = std::async(std::launch::async, [job = std::move(job)] {
#ifdef __linux__  // where a priority is a thread's
    constexpr int kLowest = 19;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
#endif
    job();
  });
}

void Background::wait() {
  if (running_.valid()) running_.get();
}

void Background::check() {
  if (!running_.valid()) return;
  if (running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) running_.get();
}

}  // namespace adjoint
