#include "schedules/simulate.h"

#include <algorithm>

#include "base/error.h"
#include "schedules/walk.h"

namespace adjoint {

namespace {

class Simulation {
 public:
  Simulation(const Schedule& schedule, const SlotTimes& times)
      : times_(times), chunks_(static_cast<size_t>(schedule.chunks)) {
    for (const auto* seconds : {&times.forward, &times.backward, &times.weight}) {
      CHECK(seconds->size() == chunks_, "times are given per chunk");
    }
    for (const auto* bytes : {&times.kept, &times.kept_for_weights}) {
      CHECK(bytes->empty() || bytes->size() == chunks_, "bytes are given per chunk");
    }
    const size_t ranks = static_cast<size_t>(schedule.ranks);
    result_.slots.resize(ranks);
    result_.ranks.resize(ranks);
    now_.resize(ranks);
    in_flight_.resize(ranks);
  }

  void add(const WalkedSlot& walked) {
    const size_t rank = static_cast<size_t>(walked.rank);
    const size_t chunk = static_cast<size_t>(walked.slot.chunk);
    std::vector<TimedSlot>& slots = result_.slots[rank];
    SimulatedRank& of = result_.ranks[rank];
    const double free = slots.empty() ? 0 : slots.back().end;
    double begin = free;
    if (walked.from_rank >= 0) {
      const double sent =
          result_.slots[static_cast<size_t>(walked.from_rank)][static_cast<size_t>(walked.from_at)]
              .end;
      begin = std::max(free, sent + times_.send);
      ++result_.messages;
      result_.message_seconds += times_.send;
      of.waits_for_messages += begin - std::min(begin, std::max(free, sent));
    }
    const double seconds = seconds_of(walked);
    if (slots.empty()) of.begin = begin;
    slots.push_back({walked.slot, begin, begin + seconds});
    of.busy += seconds;
    of.end = begin + seconds;
    keep(walked, chunk, of, slots.back());
  }

  Simulated finish() {
    result_.update = times_.update;
    double last = 0, busy = 0;
    for (const SimulatedRank& rank : result_.ranks) last = std::max(last, rank.end);
    for (SimulatedRank& rank : result_.ranks) {
      if (times_.barrier) rank.end = last + times_.exchange;
      rank.end += times_.update;
      rank.busy += times_.update;
      busy += rank.busy;
      result_.seconds = std::max(result_.seconds, rank.end);
      result_.own_seconds = std::max(result_.own_seconds, rank.end - rank.begin);
      result_.waits_for_messages += rank.waits_for_messages;
    }
    const double ranks = static_cast<double>(result_.ranks.size());
    if (result_.seconds > 0) result_.bubble = 1 - busy / (ranks * result_.seconds);
    if (result_.own_seconds > 0) result_.own_bubble = 1 - busy / (ranks * result_.own_seconds);
    return std::move(result_);
  }

 private:
  double seconds_of(const WalkedSlot& walked) const {
    const size_t chunk = static_cast<size_t>(walked.slot.chunk);
    switch (walked.slot.kind) {
      case SlotKind::kForward:
        return times_.forward[chunk];
      case SlotKind::kBackward:
        return times_.backward[chunk] + (walked.weights_apart ? 0 : times_.weight[chunk]);
      case SlotKind::kWeight:
        return times_.weight[chunk];
    }
    return 0;
  }

  void keep(const WalkedSlot& walked, size_t chunk, SimulatedRank& of, const TimedSlot& timed) {
    const size_t rank = static_cast<size_t>(walked.rank);
    const int64_t kept = times_.kept.empty() ? 0 : times_.kept[chunk];
    const int64_t for_weights = times_.kept_for_weights.empty() || !walked.weights_apart
                                    ? 0
                                    : times_.kept_for_weights[chunk];
    switch (walked.slot.kind) {
      case SlotKind::kForward:
        of.in_flight = std::max(of.in_flight, ++in_flight_[rank]);
        change(rank, timed.begin, kept);
        break;
      case SlotKind::kBackward:
        --in_flight_[rank];
        change(rank, timed.end, for_weights - kept);
        break;
      case SlotKind::kWeight:
        change(rank, timed.end, -for_weights);
        break;
    }
  }

  void change(size_t rank, double time, int64_t by) {
    if (by == 0) return;
    now_[rank] += by;
    SimulatedRank& of = result_.ranks[rank];
    of.most_bytes = std::max(of.most_bytes, now_[rank]);
    if (!of.bytes.empty() && of.bytes.back().time == time) {
      of.bytes.back().bytes = now_[rank];
    } else {
      of.bytes.push_back({time, now_[rank]});
    }
  }

  const SlotTimes& times_;
  size_t chunks_;
  Simulated result_;
  std::vector<int64_t> now_;  // bytes, per rank
  std::vector<int> in_flight_;
};

}  // namespace

SlotTimes equal_times(int chunks, double forward, double backward, double weight, double send) {
  const size_t n = static_cast<size_t>(chunks);
  SlotTimes times;
  times.forward.assign(n, forward);
  times.backward.assign(n, backward);
  times.weight.assign(n, weight);
  times.send = send;
  return times;
}

Simulated simulate(const Schedule& schedule, const SlotTimes& times) {
  Simulation simulation(schedule, times);
  const bool trains =
      std::any_of(schedule.lists.begin(), schedule.lists.end(), [](const std::vector<Slot>& list) {
        return std::any_of(list.begin(), list.end(),
                           [](const Slot& slot) { return slot.kind != SlotKind::kForward; });
      });
  const auto fault = walk(schedule, trains, [&](const WalkedSlot& slot) { simulation.add(slot); });
  if (fault) fail("schedule '", schedule.name, "' cannot run: ", fault->message);
  return simulation.finish();
}

}  // namespace adjoint
