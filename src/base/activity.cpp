#include "base/activity.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace adjoint {

namespace {

using Time = Progress::Time;

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

// Of what is counted: how long the rest takes at the pace since the first one was done.
std::optional<double> seconds_left(const Progress& s) {
  const int64_t timed = s.done - s.timed_done;
  if (s.of <= 0 || s.timed_done < 0 || timed <= 0) return std::nullopt;
  return seconds_between(s.timed_from, s.advanced) / static_cast<double>(timed) *
         static_cast<double>(s.of - s.done);
}

std::string left_of(const Progress& s, std::string_view between) {
  const auto left = seconds_left(s);
  return left && s.done < s.of ? fmt::format("{}{} left", between, human_time(*left)) : "";
}

// step 3 of 20 is under way, 12s
std::string item_under_way(const Progress& s, Time now) {
  return fmt::format("{} {} of {} is under way, {}", s.unit, s.done + 1, s.of,
                     human_time(seconds_between(s.advanced, now)));
}

std::string counted(const Progress& s) {
  const std::string unit = s.unit.empty() ? "" : " " + s.unit;
  if (s.of > 0) return fmt::format("{} of {}{}", s.done, s.of, unit);
  return fmt::format("{}{}", s.done, unit);
}

// planning, 4s; tokenizing book.txt: 12 of 300 MiB, 3s left
std::string in_words(const Progress& s, Time now) {
  const std::string note = s.note.empty() ? "" : ", " + s.note;
  const std::string since = human_time(seconds_between(s.began, now));
  if (s.done == 0 && s.of == 0) return fmt::format("{}{}, {}", s.what, note, since);
  const std::string left = left_of(s, ", ");
  return fmt::format("{}: {}{}{}", s.what, counted(s), note,
                     left.empty() && s.of == 0 ? ", " + since : left);
}

// As long as `room` columns allow; none where that is too short to say anything.
std::string bar_of(const Progress& s, int64_t room) {
  constexpr int64_t kMost = 24, kLeast = 4;
  const int64_t width = std::min(kMost, room - 1);
  if (width < kLeast) return "";
  const int64_t filled = width * s.done / std::max<int64_t>(1, s.of);
  std::string bar;
  for (int64_t i = 0; i < width; ++i) bar += i < filled ? "━" : "─";
  return bar + " ";
}

int64_t count_columns(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The first `columns` characters of a text.
std::string cut(const std::string& text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && ++seen > columns) return text.substr(0, i);
  }
  return text;
}

void write_to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int columns_of_stderr() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Looks ten times a second, until the program ends. Signals are not this thread's business.
class Looker {
 public:
  explicit Looker(Teller& teller) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this, &teller] { run(teller); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Looker() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run(Teller& teller) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return over_; })) {
      teller.look();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

struct Telling {
  Teller teller{{.every = 0}};
  std::unique_ptr<Looker> looker = {};  // ends before the teller does
};
Telling& telling() {
  static Telling all;
  return all;
}

}  // namespace

std::string human_time(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}h {:02}m", s / 3600, s / 60 % 60);
}

Teller::Teller(Options options) { set(std::move(options)); }

void Teller::set(Options options) {
  const std::scoped_lock lock(mutex_);
  options_ = std::move(options);
  if (!options_.write) options_.write = write_to_stderr;
  if (!options_.now) options_.now = [] { return Clock::now(); };
  if (!options_.columns) options_.columns = columns_of_stderr;
  line_at_ = options_.now();
}

Teller::Place Teller::begin(Progress progress) {
  const std::scoped_lock lock(mutex_);
  // A program that said nothing for a long time has not been waited for since.
  if (all_.empty()) line_at_ = options_.now();
  progress.began = progress.advanced = options_.now();
  return all_.insert(all_.end(), std::move(progress));
}

void Teller::end(Place place) {
  const std::scoped_lock lock(mutex_);
  clear();
  if (told_ == &*place) told_ = nullptr;
  all_.erase(place);
}

void Teller::advance(Place place, int64_t done, int64_t of, std::string_view note) {
  const std::scoped_lock lock(mutex_);
  Progress& s = *place;
  const Time now = options_.now();
  const bool anew = of != s.of || done < s.done;  // another phase of the work
  if (anew) s.timed_done = -1;
  if (done > s.done && s.timed_done < 0) s.timed_done = done, s.timed_from = now;
  if (done != s.done) s.advanced = now;
  s.done = done;
  s.of = of;
  s.note = note;
}

void Teller::clear() {
  if (!drawn_.empty()) options_.write("\r\033[K");
  drawn_.clear();
}

std::string Teller::doing() const {
  const std::unique_lock lock(mutex_, kPatience);
  return !lock || all_.empty() ? "" : all_.back().what;
}

std::string Teller::drawn_line(const Progress& s, Time now) const {
  if (s.of <= 0) return in_words(s, now);
  std::string text = fmt::format("{}/{}", s.done, s.of);
  if (!s.one_by_one) text = s.what + " " + text + (s.unit.empty() ? "" : " " + s.unit);
  if (!s.note.empty()) text += "  " + s.note;
  const bool slow = seconds_between(s.advanced, now) >= options_.patience;
  if (s.one_by_one && s.done < s.of && slow) {
    text += "  " + item_under_way(s, now);
  } else {
    text += left_of(s, "  ");
  }
  return bar_of(s, options_.columns() - 1 - count_columns(text)) + text;
}

std::string Teller::written_line(Time now) {
  const Progress& s = all_.back();
  const bool moved = told_ != &s || told_done_ != s.done;
  told_ = &s;
  told_done_ = s.done;
  if (s.one_by_one) {
    const bool first = s.timed_done < 0;
    if ((first || !moved) && s.done < s.of) return item_under_way(s, now);
    return fmt::format("{} {} of {}{}{}{}", s.unit, s.done, s.of, s.note.empty() ? "" : "  ",
                       s.note, left_of(s, "  "));
  }
  // Where in the larger work this is: step 250 of 2000: evaluating, 12s
  if (all_.size() > 1) {
    const Progress& outer = *std::prev(all_.end(), 2);
    if (outer.one_by_one) {
      return fmt::format("{} {} of {}: {}", outer.unit, outer.done, outer.of, in_words(s, now));
    }
  }
  return in_words(s, now);
}

void Teller::look() {
  const std::scoped_lock lock(mutex_);
  if (all_.empty()) return;
  const Time now = options_.now();
  if (!options_.terminal) {
    if (options_.every <= 0 || seconds_between(line_at_, now) < options_.every) return;
    line_at_ = now;
    return options_.write("adjoint: " + written_line(now) + "\n");
  }
  // The innermost that lasts: what is over in a moment would only flicker.
  for (auto s = all_.rbegin(); s != all_.rend(); ++s) {
    if (!s->at_once && seconds_between(s->began, now) < options_.patience) continue;
    const std::string line = cut(drawn_line(*s, now), options_.columns() - 1);
    if (line == drawn_) return;
    options_.write("\r\033[K" + line);
    drawn_ = line;
    return;
  }
}

Teller::Quiet::Quiet(Teller& teller) : teller_(teller), lock_(teller.mutex_) { teller_.clear(); }

Teller::Quiet::Quiet(Teller& teller, std::chrono::milliseconds patience)
    : teller_(teller), lock_(teller.mutex_, patience) {
  if (lock_) leaves_a_line_ = !std::exchange(teller_.drawn_, {}).empty();
}

Teller::Quiet::~Quiet() {
  if (lock_) teller_.line_at_ = teller_.options_.now();
}

Teller& teller() { return telling().teller; }

void start_telling(double every) {
  Telling& all = telling();
  const char* const kind = std::getenv("TERM");
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !(kind && std::string(kind) == "dumb");
  all.teller.set({.terminal = terminal, .every = every});
  if (!all.looker) all.looker = std::make_unique<Looker>(all.teller);
}

void stop_telling() { telling().looker = nullptr; }

Activity::Activity(Progress progress, bool told, Teller& teller)
    : teller_(told ? &teller : nullptr) {
  if (teller_) place_ = teller_->begin(std::move(progress));
}

Activity::~Activity() {
  if (teller_) teller_->end(place_);
}

void Activity::at(int64_t done, int64_t of, std::string_view note) {
  if (teller_) teller_->advance(place_, done, of, note);
}

}  // namespace adjoint
