// One long command: a child process, and everything that it said, in order, so that a page that
// comes later sees it from the beginning. Lines that a terminal would overwrite (progress, with
// carriage returns) are one event that is replaced. Of a training run the new lines of its
// metrics.jsonl are events, too.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "studio/children.h"
#include "studio/http_message.h"
#include "studio/metrics_tail.h"

namespace adjoint {

class Job {
 public:
  struct About {
    std::string id;
    std::vector<std::string> arguments;
    std::string folder;  // its --out, or ""
  };
  struct Ears {
    std::function<void(const Job&)> ended;
    std::function<void(const nlohmann::json&)> said;  // with each event
  };
  // `metrics`: of a training run.
  Job(About about, MetricsTail metrics, Child child, Ears ears);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  nlohmann::json describe() const;
  // With "result": what the command printed, if that is JSON; "truncated" if it was too much to
  // keep.
  nlohmann::json describe_with_result() const;
  bool running() const;
  size_t kept_bytes() const;
  // Asks it to save and stop; asked again more than two seconds later, it is killed.
  void stop();
  // Asks it, unless that was done already, and never kills.
  void ask_to_stop();
  void kill();
  // Writes events from number `from` on, those to come as well if it `waits`: until the job has
  // ended or the client leaves.
  void stream(HttpStream& to, int64_t from, bool waits);

 private:
  struct Event {
    int64_t n;
    std::string text;      // as sent
    const char* progress;  // the stream whose unfinished line this is, or null
  };
  // Lines of one pipe, as they come.
  struct Lines {
    const char* kind;  // "out" or "err"
    std::string unfinished;
    bool shown = false;  // the unfinished line is an event
  };
  void follow();
  void take(Lines& lines, std::string_view bytes);
  void show_unfinished(Lines& lines);
  void add(nlohmann::json event, const char* progress = nullptr);
  void add_locked(nlohmann::json event, const char* progress = nullptr);
  void pop_event(bool last);
  void end(int code);
  nlohmann::json describe_locked() const;

  const About about_;
  const Ears ears_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  size_t event_bytes_ = 0;  // of `events_`
  int64_t next_ = 0;
  std::string state_ = "running", printed_;
  bool truncated_ = false;  // it printed more than `printed_` holds
  int code_ = 0;
  double started_, ended_ = 0;
  std::optional<std::chrono::steady_clock::time_point> asked_to_stop_;
  Child child_;  // its process of `mutex_`, its pipes of the follower
  MetricsTail metrics_;
  std::thread follower_;
};

}  // namespace adjoint
