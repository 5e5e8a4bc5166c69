#include "comm/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

WatchLimits said_limits() {
  WatchLimits limits;
  const char* said = std::getenv("ADJOINT_SILENCE");
  if (!said || !*said) return limits;
  char* end = nullptr;
  limits.seconds = std::strtod(said, &end);
  if (*end || !(limits.seconds > 0)) {
    fail("ADJOINT_SILENCE: wanted seconds above 0, found '", said, "'");
  }
  return limits;
}

Watchdog::Watchdog(int ranks, const WatchLimits& limits, double now)
    : limits_(limits), ranks_(ranks) {
  for (Rank& rank : ranks_) rank.heard = now;
}

void Watchdog::progress(int rank, int64_t step, std::string_view object, double now) {
  Rank& told = ranks_[rank];
  told.heard = now;
  told.object = object;
  if (step == told.step) return;
  // The time before the first step is no step's.
  if (told.step >= 0) told.step_seconds = now - told.step_began;
  told.step = step;
  told.step_began = now;
}

void Watchdog::alive(int rank, double now) { ranks_[rank].heard = now; }
void Watchdog::waits(int rank, bool waits) { ranks_[rank].waits = waits; }
void Watchdog::leaves(int rank) { ranks_[rank].left = true; }
void Watchdog::forgives(double seconds) {
  for (Rank& rank : ranks_) rank.heard += seconds;
}

std::string Watchdog::place(int rank) const {
  const Rank& told = ranks_[rank];
  std::string place =
      told.step < 0 ? "before the first step" : fmt::format("at step {}", told.step);
  if (!told.object.empty()) place += fmt::format(" in '{}'", told.object);
  return place;
}

double Watchdog::limit() const {
  double longest = 0;
  for (const Rank& rank : ranks_) longest = std::max(longest, rank.step_seconds);
  return std::max(limits_.seconds, limits_.steps * longest);
}

std::string Watchdog::sentence(const std::vector<int>& ranks, const std::string& claim,
                               double now) const {
  std::vector<std::string> places;
  double silent = ranks_[ranks[0]].heard;
  for (const int rank : ranks) {
    places.push_back(fmt::format("rank {} {}", rank, place(rank)));
    silent = std::max(silent, ranks_[rank].heard);
  }
  return fmt::format("{} for {:.0f} s: {}", claim, now - silent, join(places, ", "));
}

std::optional<std::string> Watchdog::verdict(double now) const {
  if (ranks_.size() == 1) return std::nullopt;  // nobody waits for it
  std::vector<int> silent, waiting;
  bool all_silent = true;
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.left) continue;
    const bool too_long = now - rank.heard > limit();
    if (!too_long) all_silent = false;
    if (too_long) (rank.waits ? waiting : silent).push_back(i);
  }
  if (!silent.empty()) {
    return sentence(silent, silent.size() == 1 ? "a rank was silent" : "ranks were silent", now);
  }
  if (all_silent && !waiting.empty()) {
    return sentence(waiting, "all ranks wait for each other", now);
  }
  return std::nullopt;
}

}  // namespace adjoint
