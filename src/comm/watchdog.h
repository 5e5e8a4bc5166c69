// Who is still at work. Every rank says where it is (step and object), and whether it waits for
// others; a rank that says nothing for too long, and waits for nobody, has failed. Here is only the
// judgement, so that it can be tested without a clock: engines bring the news (comm/threads.cpp,
// comm/lifeline.h), and times are seconds of any steady clock.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

struct WatchLimits {
  double seconds = 60;  // without news, or
  double steps = 10;    // the time of so many steps, whichever is longer
};

// These, but for what ADJOINT_SILENCE says: seconds, for whoever sits in a debugger.
WatchLimits said_limits();

class Watchdog {
 public:
  Watchdog(int ranks, const WatchLimits& limits, double now);

  // News of a rank. Whatever it does is progress: a step, a tensor, a file, a message.
  void progress(int rank, int64_t step, std::string_view object, double now);
  void alive(int rank, double now);  // where it was
  void waits(int rank, bool waits);  // for others
  void leaves(int rank);             // its work is done
  void forgives(double seconds);     // of everyone's silence: nobody listened

  // "at step 17 in 'block[3].qkv.weight'"; of a rank that said nothing, "before the first step".
  std::string place(int rank) const;
  double limit() const;  // seconds of silence that are forgiven by now
  // Why the job must end, naming the ranks to blame; nothing while all is well. A rank that waits
  // is not to blame, unless everyone waits.
  std::optional<std::string> verdict(double now) const;

 private:
  struct Rank {
    int64_t step = -1;
    std::string object = {};
    double heard = 0;         // when there was news
    double step_began = 0;    // when the step began, if one did
    double step_seconds = 0;  // of the step before
    bool waits = false, left = false;
  };
  std::string sentence(const std::vector<int>& ranks, const std::string& claim, double now) const;

  WatchLimits limits_;
  std::vector<Rank> ranks_;
};

}  // namespace adjoint
