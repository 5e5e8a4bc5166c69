// How the processes of a job notice that one of them is gone, beside whatever carries their
// messages: every rank holds a socket to a hub, which is rank 0 or, where `adjoint launch` started
// the job, that process. The kernel closes the socket when a process dies, however it dies, and
// news of progress travel on it, so that the hub can tell silence from work (comm/watchdog.h). The
// hub says what happened, once, and tells everyone.
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

// In the environment of ranks whose hub is not one of them: its address.
inline constexpr const char* kLifelineVariable = "ADJOINT_LIFELINE";

struct LifelineOptions {
  int rank = 0, ranks = 1;  // rank kOutside: a hub that is no rank
  WatchLimits limits = {};
  double grace = 5;  // seconds that a rank has to end by itself when the job has ended
  bool one_machine =
      false;  // all ranks are on this one, so that nobody else needs to reach the hub
  // Called once, from another thread, when the job has ended; `refused`: the input was wrong.
  std::function<void(const std::string& reason, bool refused)> ended = nullptr;
  std::function<void(const std::string& line)> say = nullptr;  // empty: standard error
};

class Lifeline {
 public:
  static constexpr int kOutside = -1;
  explicit Lifeline(LifelineOptions options);
  ~Lifeline();  // says goodbye
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // The hub listens, and gives everyone the address; then all join. Throws a MachineError that
  // names the ranks which did not come.
  std::string listen();
  void join(const std::string& address, int hub = 0);
  // Of a hub that is no rank: from now on ranks may join.
  void serve();
  int num_joined();

  void progress(int64_t step, std::string_view object);
  void alive();  // the same step and object
  void waits(bool waits);
  std::string place();  // as the watchdog says it
  // Ends the job; returns when the hub has said so, or after a moment.
  void end(const std::string& reason, bool refused = false);

 private:
  struct News {
    int64_t step = -1;
    std::string object = {};
    uint64_t count = 0;  // of progress
    bool waits = false;
    bool operator==(const News&) const = default;
  };
  struct End {
    std::string reason;
    bool refused = false;
  };
  struct Peer {
    int rank = 0, socket = -1;
    std::string unread = {};
    uint64_t count = 0;
    double heard = 0;  // when it last said anything
    bool left = false;
  };
  // Somebody who has connected and has not said yet who it is.
  struct Stranger {
    int socket = -1;
    double came = 0;
    std::string unread = {};
  };
  bool is_hub() const { return options_.rank == hub_; }
  void watch();
  void accept_one();
  bool introduces(Stranger& stranger);  // false: it is to be heard again
  void hear_strangers();
  void judge_hub();
  void forgive(double seconds);  // of silence: this process did not listen
  void tell_news();
  void send_news();
  void leaves(Peer& peer);
  bool hear(Peer& peer);  // false: it died
  void hear_line(Peer& peer, const std::string& line);
  void note_deaths(const std::vector<int>& ranks);
  void note_refusal(int rank, const std::string& reason);
  void tell_refusal();
  void job_ended(const End& end, bool say);
  double beat() const;

  LifelineOptions options_;
  int listener_ = -1;
  std::string token_;
  int hub_ = 0;
  std::vector<Peer> peers_;  // of the hub: everyone; of others: the hub
  std::vector<Stranger> strangers_;
  double looked_at_ = 0;  // when this process last looked at the others
  bool judged_ = false;   // a hub that was away for so long that the others have judged it
  std::vector<std::pair<int, std::string>> refusals_;  // of the hub: who found what wrong
  double refused_at_ = 0;
  int wake_[2] = {-1, -1};  // a pipe, so that the thread notices `end` and the destructor
  std::unique_ptr<Watchdog> dog_;

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_, told_;
  double told_at_ = 0;            // when `told_` was
  uint64_t noted_ = 0;            // the count of the news that this rank's own watchdog has
  std::optional<End> asked_end_;  // by this rank
  int joined_ = 0;
  bool ended_ = false, over_ = false;
  std::thread thread_;
};

}  // namespace adjoint
