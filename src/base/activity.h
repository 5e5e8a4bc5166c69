// What the program is doing, told to whoever waits. Work that may last says so with an Activity;
// one teller looks at the innermost ten times a second. On a terminal it redraws one line, once the
// work has taken two seconds; elsewhere, in a log, it writes a line of its own whenever nothing was
// written for some seconds, so that nobody wonders whether the program hangs.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

namespace adjoint {

std::string human_time(double seconds);  // 3m 20s

// What is known of one activity.
struct Progress {
  using Time = std::chrono::steady_clock::time_point;
  std::string what;          // "planning", "tokenizing book.txt"
  std::string unit = {};     // what is counted: "MiB", "plans"
  bool one_by_one = false;   // each of these is work of its own: step 3 of 20 is under way
  bool at_once = false;      // drawn on a terminal from its beginning
  int64_t done = 0, of = 0;  // 0: nobody knows how many there will be
  std::string note = {};     // a loss, a rate
  Time began = {};           // this activity
  Time advanced = {};        // the last one that was counted
  Time timed_from = {};     // when `timed_done` were done: the first one is slow and does not count
  int64_t timed_done = -1;  // -1: none was done yet
};

class Teller {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    bool terminal = false;
    double every =
        9;  // seconds without a line, elsewhere: ten, on a machine that is busy; 0: never
    double patience = 2;  // seconds before a line is drawn on a terminal
    std::function<void(std::string_view)> write = {};
    std::function<Clock::time_point()> now = {};
    std::function<int()> columns = {};  // of the terminal
  };

  explicit Teller(Options options);
  void set(Options options);

  // Draws or writes, if it is time to.
  void look();
  // How long a signal's answer waits for whoever writes: a pipe that nobody reads holds a writer
  // for ever.
  static constexpr std::chrono::milliseconds kPatience{200};
  // What is being done, for a sentence: "planning"; "" where nobody says, or where somebody has
  // been writing for longer than `kPatience`.
  std::string doing() const;

  // While this lives nothing is drawn, so that something else can be printed; that counts as a
  // line.
  class Quiet {
   public:
    explicit Quiet(Teller& teller);
    // For a signal's answer: waits no longer than this, and writes nothing, not even what clears
    // the drawn line.
    Quiet(Teller& teller, std::chrono::milliseconds patience);
    ~Quiet();
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

    // Whether a line is left on the terminal, for the one who answers a signal to clear.
    bool leaves_a_line() const { return leaves_a_line_; }

   private:
    Teller& teller_;
    std::unique_lock<std::recursive_timed_mutex> lock_;
    bool leaves_a_line_ = false;
  };

 private:
  friend class Activity;
  using Place = std::list<Progress>::iterator;
  Place begin(Progress progress);
  void end(Place place);
  void advance(Place place, int64_t done, int64_t of, std::string_view note);
  void clear();
  std::string drawn_line(const Progress& progress, Clock::time_point now) const;
  std::string written_line(Clock::time_point now);

  Options options_;
  mutable std::recursive_timed_mutex mutex_;
  std::list<Progress> all_;  // the innermost is the last
  std::string drawn_;        // on the terminal now
  Clock::time_point line_at_;
  const Progress* told_ = nullptr;  // of whom the last line was, and how many it had done
  int64_t told_done_ = -1;
};

// The program's own. Until `start_telling` nothing is told, which is what tests and libraries want.
Teller& teller();
// To standard error. `every`: seconds without a line in a log; 0: none is written there.
void start_telling(double every = Teller::Options{}.every);
// Nobody is told anything from now on: of several processes one tells.
void stop_telling();

class Activity {
 public:
  // `told` false: somebody else tells of the same work.
  explicit Activity(std::string what, bool told = true)
      : Activity(Progress{.what = std::move(what)}, told) {}
  explicit Activity(Progress progress, bool told = true, Teller& teller = adjoint::teller());
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // How far it is. May be called by several threads.
  void at(int64_t done, int64_t of, std::string_view note = {});

 private:
  Teller* teller_;
  Teller::Place place_;
};

}  // namespace adjoint
