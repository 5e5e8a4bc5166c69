#include "studio/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/clock.h"
#include "base/json.h"
#include "studio/commands.h"
#include "studio/events.h"

namespace adjoint {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kMostEvents = 5000, kLongestLine = 64 * 1024;
constexpr size_t kMostPrinted = 16 * 1024 * 1024, kMostEventBytes = 8 * 1024 * 1024;
constexpr std::chrono::milliseconds kLook{200};  // between looks at metrics and unfinished lines
constexpr std::chrono::seconds kPatience{2};

// What a terminal would show of a line with carriage returns in it.
std::string shown(const std::string& line) {
  const size_t last = line.find_last_not_of('\r');
  if (last == line.npos) return "";
  const size_t before = line.rfind('\r', last);
  return line.substr(before == line.npos ? 0 : before + 1, last - (before + 1) + 1);
}

}  // namespace

Job::Job(About about, MetricsTail metrics, Child child, Ears ears)
    : about_(std::move(about)),
      ears_(std::move(ears)),
      started_(seconds_since_1970()),
      child_(std::move(child)),
      metrics_(std::move(metrics)) {
  add({{"kind", "state"}, {"state", state_}});
  follower_ = std::thread([this] { follow(); });
}

Job::~Job() {
  kill();
  follower_.join();
}

json Job::describe_locked() const {
  json about = {{"id", about_.id},     {"args", about_.arguments}, {"state", state_},
                {"started", started_}, {"folder", about_.folder},  {"code", nullptr},
                {"ended", nullptr},    {"events", next_}};
  if (state_ != "running") {
    about["code"] = code_;
    about["ended"] = ended_;
  }
  return about;
}

json Job::describe() const {
  const std::scoped_lock lock(mutex_);
  return describe_locked();
}

json Job::describe_with_result() const {
  const std::scoped_lock lock(mutex_);
  json about = describe_locked();
  auto read = try_parse_json(truncated_ ? std::string() : printed_);
  json* const result = truncated_ ? nullptr : std::get_if<json>(&read);
  about["result"] = result ? std::move(*result) : json();
  about["truncated"] = truncated_;
  return about;
}

size_t Job::kept_bytes() const {
  const std::scoped_lock lock(mutex_);
  return printed_.size() + event_bytes_;
}

bool Job::running() const {
  const std::scoped_lock lock(mutex_);
  return state_ == "running";
}

void Job::stop() {
  const std::scoped_lock lock(mutex_);
  if (state_ != "running") return;
  if (!asked_to_stop_) {
    asked_to_stop_ = Clock::now();
    child_.signal(SIGINT);
  } else if (Clock::now() - *asked_to_stop_ >= kPatience) {
    child_.signal(SIGKILL);
  }
}

void Job::ask_to_stop() {
  const std::scoped_lock lock(mutex_);
  if (state_ != "running" || asked_to_stop_) return;
  asked_to_stop_ = Clock::now();
  child_.signal(SIGINT);
}

void Job::kill() {
  const std::scoped_lock lock(mutex_);
  child_.signal(SIGKILL);
}

void Job::add(json event, const char* progress) {
  const std::scoped_lock lock(mutex_);
  add_locked(std::move(event), progress);
}

void Job::add_locked(json event, const char* progress) {
  // A line that is still being written takes the place of what it was before.
  if (!events_.empty() && events_.back().progress && progress == events_.back().progress) {
    pop_event(/*last=*/true);
  }
  event["n"] = next_;
  ears_.said(event);
  events_.push_back({.n = next_,
                     .text = "id: " + std::to_string(next_) + "\n" + event_text(event),
                     .progress = progress});
  event_bytes_ += events_.back().text.size();
  ++next_;
  while (events_.size() > 1 && (events_.size() > kMostEvents || event_bytes_ > kMostEventBytes)) {
    pop_event(/*last=*/false);
  }
  changed_.notify_all();
}

void Job::pop_event(bool last) {
  event_bytes_ -= (last ? events_.back() : events_.front()).text.size();
  last ? events_.pop_back() : events_.pop_front();
}

void Job::take(Lines& lines, std::string_view bytes) {
  if (lines.kind == std::string_view("out")) {
    const std::scoped_lock lock(mutex_);
    truncated_ = truncated_ || printed_.size() + bytes.size() > kMostPrinted;
    if (truncated_) {
      std::string().swap(printed_);  // a part of JSON is of no use
    } else {
      printed_ += bytes;
    }
  }
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    lines.unfinished += bytes.substr(0, end);
    lines.shown = false;
    bytes.remove_prefix(end == bytes.npos ? bytes.size() : end + 1);
    if (end == bytes.npos && lines.unfinished.size() < kLongestLine) {
      // Of what was overwritten nobody needs to remember more than the last.
      if (lines.unfinished.find('\r') != std::string::npos && !lines.unfinished.ends_with('\r')) {
        lines.unfinished = "\r" + shown(lines.unfinished);
      }
      return;
    }
    // The finished line replaces what was shown of it.
    {
      const std::scoped_lock lock(mutex_);
      if (!events_.empty() && events_.back().progress == lines.kind) pop_event(/*last=*/true);
    }
    add({{"kind", lines.kind}, {"text", shown(lines.unfinished)}});
    lines.unfinished.clear();
  }
}

void Job::show_unfinished(Lines& lines) {
  if (lines.shown || lines.unfinished.empty()) return;
  lines.shown = true;
  add({{"kind", lines.kind}, {"text", shown(lines.unfinished)}, {"progress", true}}, lines.kind);
}

void Job::follow() {
  Lines out{.kind = "out", .unfinished = ""}, err{.kind = "err", .unfinished = ""};
  for (const int file : {child_.out, child_.err}) ::fcntl(file, F_SETFL, O_NONBLOCK);
  auto next_look = Clock::now() + kLook;
  const auto look = [&] {
    for (Lines* lines : {&out, &err}) show_unfinished(*lines);
    for (const json& line : metrics_.next()) add({{"kind", "metrics"}, {"line", line}});
    next_look = Clock::now() + kLook;
  };
  while (child_.out >= 0 || child_.err >= 0) {
    pollfd files[] = {{child_.out, POLLIN, 0}, {child_.err, POLLIN, 0}};
    const int ready = ::poll(files, 2, static_cast<int>(kLook.count()));
    for (const auto& [file, from, lines] :
         {std::tuple(files[0], &child_.out, &out), std::tuple(files[1], &child_.err, &err)}) {
      if (ready <= 0 || !file.revents) continue;
      char buffer[16384];
      const ssize_t got = ::read(*from, buffer, sizeof buffer);
      if (got > 0) take(*lines, {buffer, static_cast<size_t>(got)});
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) close_file(*from);
    }
    if (Clock::now() >= next_look) look();
  }
  look();
  // Its end is taken under the lock, lest a signal go to another process that has its number.
  siginfo_t about = {};
  while (::waitid(P_PID, static_cast<id_t>(child_.pid), &about, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  look();
  std::unique_lock lock(mutex_);
  const int code = child_.wait();
  lock.unlock();
  end(code);
}

void Job::end(int code) {
  {
    const std::scoped_lock lock(mutex_);
    code_ = code;
    ended_ = seconds_since_1970();
    state_ = asked_to_stop_ ? "stopped" : code == 0 ? "done" : "failed";
    add_locked({{"kind", "state"}, {"state", state_}, {"code", code}});
  }
  ears_.ended(*this);
}

void Job::stream(HttpStream& to, int64_t from, bool waits) {
  constexpr std::chrono::seconds kBeat{5};
  auto next_beat = Clock::now() + kBeat;
  std::unique_lock lock(mutex_);
  while (true) {
    std::string text;
    for (const Event& event : events_) {
      if (event.n >= from) text += event.text;
    }
    from = std::max(from, next_);
    const bool over = !waits || state_ != "running";
    if (text.empty() && Clock::now() >= next_beat) text = ": beat\n\n";
    if (!text.empty()) next_beat = Clock::now() + kBeat;
    lock.unlock();
    const bool goes_on = to.open() && (text.empty() || to.send(text));
    lock.lock();
    if (!goes_on || over) return;
    changed_.wait_for(lock, std::chrono::milliseconds(500), [&] { return next_ > from; });
  }
}

}  // namespace adjoint
