#include "studio/events.h"

#include <chrono>
#include <utility>

namespace adjoint {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {
constexpr std::chrono::seconds kBeat{5};
constexpr size_t kLongestQueue = 2000, kMostQueued = 8 * 1024 * 1024;
}  // namespace

std::string event_text(const json& event) {
  return "data: " + event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n\n";
}

void Events::publish(const json& event, bool of_job) {
  const std::string text = event_text(event);
  const std::scoped_lock lock(mutex_);
  for (Listener& listener : listeners_) {
    if (of_job && !listener.with_jobs) continue;
    listener.queue.push_back(text);
    listener.bytes += text.size();
    while (listener.queue.size() > kLongestQueue ||
           (listener.bytes > kMostQueued && listener.queue.size() > 1)) {
      listener.bytes -= listener.queue.front().size();
      listener.queue.pop_front();
    }
  }
  changed_.notify_all();
}

void Events::stream(HttpStream& to, bool with_jobs) {
  std::unique_lock lock(mutex_);
  const auto mine = listeners_.insert(listeners_.end(), Listener{.with_jobs = with_jobs});
  lock.unlock();
  arrival_();  // which may ask `anybody`
  lock.lock();
  auto next_beat = Clock::now();
  while (!stopped_) {
    std::string text;
    for (; !mine->queue.empty(); mine->queue.pop_front()) text += mine->queue.front();
    mine->bytes = 0;
    if (Clock::now() >= next_beat) {
      text += event_text({{"kind", "beat"}});
      next_beat = Clock::now() + kBeat;
    }
    lock.unlock();
    const bool goes_on = to.open() && (text.empty() || to.send(text));
    lock.lock();
    if (!goes_on) break;
    changed_.wait_for(lock, std::chrono::milliseconds(500),
                      [&] { return stopped_ || !mine->queue.empty(); });
  }
  listeners_.erase(mine);
}

bool Events::anybody() const {
  const std::scoped_lock lock(mutex_);
  return !listeners_.empty();
}

void Events::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

Watch::Watch(const Folder& folder, Events& events) : folder_(folder), events_(events) {
  events_.on_arrival([this] {
    const std::scoped_lock lock(mutex_);
    if (!before_) before_ = seen();
  });
  watcher_ = std::thread([this] { look(); });
}

Watch::~Watch() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

Watch::Seen Watch::seen() const {
  Seen all;
  for (const ListedFile& file : folder_.list()) all[file.path] = {file.modified, file.bytes};
  return all;
}

void Watch::look() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return over_; });
    if (!events_.anybody()) {
      before_.reset();
      continue;
    }
    if (!before_) continue;  // somebody is about to say that they came
    Seen now = seen();
    json changed = json::array(), removed = json::array();
    for (const auto& [path, each] : now) {
      const auto old = before_->find(path);
      if (old == before_->end() || old->second != each) changed.push_back(path);
    }
    for (const auto& [path, each] : *before_) {
      if (!now.contains(path)) removed.push_back(path);
    }
    before_ = std::move(now);
    if (changed.empty() && removed.empty()) continue;
    events_.publish({{"kind", "files"}, {"changed", changed}, {"removed", removed}});
  }
}

}  // namespace adjoint
