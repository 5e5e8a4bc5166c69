#include "cli/interrupts.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/activity.h"
#include "base/note.h"
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

// To standard error, past the buffers and locks of others; not at all where that would wait, as on
// a pipe that nobody reads.
void write_at_once(const std::string& text) {
  pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, static_cast<int>(Teller::kPatience.count())) < 1) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Interrupts::Interrupts(std::vector<int> more) : more_(std::move(more)) {
  const sigset_t set = endings(more_);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  listener_ = std::thread([this] { listen(); });
}

Interrupts::~Interrupts() {
  over_ = true;
  pthread_kill(listener_.native_handle(), SIGINT);  // wakes it, and it looks
  listener_.join();
  const sigset_t set = endings(more_);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interrupts::ask_from_now_on(Answers answers) {
  const std::scoped_lock lock(mutex_);  // ranks that are threads all say it
  answers_ = std::move(answers);
  asks_ = true;
}

void Interrupts::tell(const std::string& text) const {
  const bool says = !silent_ && !text.empty();
  const Teller::Quiet quiet(teller(), Teller::kPatience);
  // The terminal has written ^C where the cursor was.
  std::string all =
      quiet.leaves_a_line() || (says && ::isatty(STDERR_FILENO) == 1) ? "\r\033[K" : "";
  if (says) all += "adjoint: " + text + "\n";
  if (!all.empty()) write_at_once(all);
}

void let_first_rank_tell(int rank) {
  Interrupts::be_ended_by_a_launcher();
  if (rank == 0) return;
  set_note_writer([](const std::string&) {});
  Interrupts::be_silent();
  stop_telling();
}

void Interrupts::listen() {
  using Clock = std::chrono::steady_clock;
  const sigset_t set = endings(more_);
  constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 50'000'000};
  Clock::time_point first = {};
  while (!over_) {
    const int signal = sigtimedwait(&set, nullptr, &kPatience);
    if (signal < 0 || over_) continue;
    if (!asks_) {
      const std::string doing = teller().doing();
      if (!doing.empty()) tell("interrupted while " + doing);
      if (doing.empty() && !launched_) tell("interrupted");
      ::_exit(kInterrupted);
    }
    // Somebody who left is not in a hurry.
    if (stop_ && signal == SIGHUP) continue;
    // One key press may arrive twice: from the terminal, and from whoever started us.
    if (stop_ && Clock::now() - first > std::chrono::seconds(1)) {
      tell(answers().second);
      ::_exit(kInterrupted);
    }
    if (stop_) continue;
    first = Clock::now();
    stop_ = true;
    if (const Answers said = answers(); said.first) tell(said.first());
  }
}

}  // namespace adjoint
