// What a page is told without asking: which files changed, and what jobs do. Every page that
// listens has a queue of its own; one that does not read loses its oldest events.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "studio/folder.h"
#include "studio/http_message.h"

namespace adjoint {

// As an event stream has it: "data: ...\n\n".
std::string event_text(const nlohmann::json& event);

class Events {
 public:
  // `of_job`: only to those who listen to what jobs say, too.
  void publish(const nlohmann::json& event, bool of_job = false);
  // Writes events until the client leaves, and a beat every few seconds.
  void stream(HttpStream& to, bool with_jobs);
  bool anybody() const;
  // Called when somebody has begun to listen, before they are told anything. To be said before
  // anybody can.
  void on_arrival(std::function<void()> told) { arrival_ = std::move(told); }
  void stop();

 private:
  struct Listener {
    std::deque<std::string> queue = {};
    size_t bytes = 0;  // of `queue`
    bool with_jobs = false;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Listener> listeners_;
  std::function<void()> arrival_ = [] {};
  bool stopped_ = false;
};

// Looks at the folder when somebody begins to listen and once a second from then on, and tells what
// changed.
class Watch {
 public:
  Watch(const Folder& folder, Events& events);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  using Seen = std::map<std::string, std::pair<int64_t, int64_t>>;  // when and how large
  void look();
  Seen seen() const;
  const Folder& folder_;
  Events& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Seen> before_;  // while somebody listens
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace adjoint
