// How the processes of a job notice that one of them is gone, beside whatever carries their
// messages: every rank holds a socket to rank 0. The kernel closes it when a process dies, however
// it dies, and news of progress travel on it, so that rank 0 can tell silence from work
// (comm/watchdog.h). Rank 0 says what happened, once, and tells everyone.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/watchdog.h"

namespace adjoint {

struct LifelineOptions {
  int rank = 0, ranks = 1;
  WatchLimits limits = {};
  double grace = 5;  // seconds that a process has to end by itself when the job has ended
  // Called once, from another thread, when the job has ended.
  std::function<void(const std::string& reason)> ended = nullptr;
  std::function<void(const std::string& line)> say = nullptr;  // empty: standard error
};

class Lifeline {
 public:
  explicit Lifeline(LifelineOptions options);
  ~Lifeline();  // says goodbye
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Rank 0 listens, and gives everyone the address; then all join. Throws a MachineError that names
  // the ranks which did not come.
  std::string listen();
  void join(const std::string& address);

  void progress(int64_t step, std::string_view object);
  void alive();  // the same step and object
  void waits(bool waits);
  std::string place();  // as the watchdog says it
  // Ends the job; returns when rank 0 has said so, or after a moment.
  void end(const std::string& reason);

 private:
  struct News {
    int64_t step = -1;
    std::string object = {};
    uint64_t count = 0;  // of progress
    bool waits = false;
    bool operator==(const News&) const = default;
  };
  struct Peer {
    int rank = 0, socket = -1;
    std::string unread = {};
    uint64_t count = 0;
    bool left = false;
  };
  void watch();
  void tell_news();
  void hear(Peer& peer);
  void hear_line(Peer& peer, const std::string& line);
  void job_ended(const std::string& reason, bool say);
  double beat() const;

  LifelineOptions options_;
  int listener_ = -1;
  std::string token_;
  std::vector<Peer> peers_;  // rank 0: everyone; others: rank 0
  int wake_[2] = {-1, -1};   // a pipe, so that the thread notices `end` and the destructor
  std::unique_ptr<Watchdog> dog_;

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_, told_;
  std::optional<std::string> asked_end_;  // by this rank
  bool ended_ = false, over_ = false;
  std::thread thread_;
};

}  // namespace adjoint
