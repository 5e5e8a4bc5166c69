#include "cli/interrupts.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "cli/command.h"

namespace adjoint {

namespace {

sigset_t endings(const std::vector<int>& more) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&set, signal);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // nohup means it
  for (const int signal : more) sigaddset(&set, signal);
  return set;
}

}  // namespace

Interrupts::Interrupts(std::vector<int> more) : more_(std::move(more)) {
  const sigset_t set = endings(more_);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  listener_ = std::thread([this] { listen(); });
}

Interrupts::~Interrupts() {
  over_ = true;
  listener_.join();
  const sigset_t set = endings(more_);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interrupts::listen() {
  using Clock = std::chrono::steady_clock;
  const sigset_t set = endings(more_);
  constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 50'000'000};
  Clock::time_point first = {};
  while (!over_) {
    if (sigtimedwait(&set, nullptr, &kPatience) < 0) continue;
    if (!asks_) ::_exit(kInterrupted);
    // One key press may arrive twice: from the terminal, and from whoever started us.
    if (stop_ && Clock::now() - first > std::chrono::seconds(1)) ::_exit(kInterrupted);
    if (!stop_) first = Clock::now();
    stop_ = true;
  }
}

}  // namespace adjoint
