#include "schedules/simulate.h"

#include <algorithm>

#include "base/error.h"
#include "schedules/walk.h"

namespace adjoint {

namespace {

class Simulation {
 public:
  // `measured`: when slots really ran; none: they begin as soon as they can, and take `times`.
  Simulation(const Schedule& schedule, const SlotTimes& times,
             const std::vector<MeasuredWalk>* measured)
      : schedule_(schedule),
        holder_(holder_of(schedule)),
        times_(times),
        measured_(measured),
        chunks_(static_cast<size_t>(schedule.chunks)) {
    const size_t ranks = static_cast<size_t>(schedule.ranks);
    for (const auto* seconds : {&times.forward, &times.backward, &times.weight}) {
      CHECK(measured || seconds->size() == chunks_, "times are given per chunk");
    }
    for (const auto* bytes : {&times.kept, &times.kept_for_weights}) {
      CHECK(bytes->empty() || bytes->size() == chunks_, "bytes are given per chunk");
    }
    CHECK(!measured || measured->size() == ranks, "every rank was measured");
    CHECK(times.before.empty() || times.before.size() == ranks, "one beginning for every rank");
    CHECK(times.slots.empty() || times.slots.size() == ranks, "slots are given per rank");
    for (size_t rank = 0; rank < ranks; ++rank) {
      const size_t slots = schedule.lists[rank].size();
      CHECK(times.slots.empty() || times.slots[rank].size() == slots, "seconds of every slot");
      CHECK(!measured || (*measured)[rank].slots.size() == slots, "every slot was measured");
    }
    result_.slots.resize(ranks);
    result_.ranks.resize(ranks);
    now_.resize(ranks);
    in_flight_.resize(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) begin(rank);
  }

  void add(const WalkedSlot& walked) {
    const size_t rank = static_cast<size_t>(walked.rank);
    const size_t chunk = static_cast<size_t>(walked.slot.chunk);
    std::vector<TimedSlot>& slots = result_.slots[rank];
    SimulatedRank& of = result_.ranks[rank];
    const double free = slots.empty() ? of.before.end : slots.back().end;
    double begin = free, seconds = 0, sent = 0;
    const bool receives = walked.from_rank >= 0;
    if (receives) sent = end_of(walked.from_rank, walked.from_at);
    if (measured_) {
      const TimedWork& work = (*measured_)[rank].slots[static_cast<size_t>(walked.at)];
      begin = work.begin;
      seconds = work.end - work.begin;
    } else {
      if (receives) begin = std::max(free, sent + times_.send);
      seconds = seconds_of(walked) + (next_receives(walked) ? times_.beside : 0);
    }
    if (receives) {
      ++result_.messages;
      result_.message_seconds += times_.send;
      of.waits_for_messages += begin - std::min(begin, std::max(free, sent));
    }
    if (slots.empty()) of.begin = begin - (of.before.end - of.before.begin);
    slots.push_back({walked.slot, begin, begin + seconds});
    of.busy += seconds;
    of.end = begin + seconds;
    keep(walked, chunk, of, slots.back());
  }

  Simulated finish() {
    if (measured_) {
      for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
        result_.ranks[rank].after = (*measured_)[rank].after;
      }
    } else {
      run_end();
    }
    double busy = 0;
    for (SimulatedRank& rank : result_.ranks) {
      for (const TimedWork& work : rank.after) {
        rank.busy += work.end - work.begin;
        rank.end = std::max(rank.end, work.end);
      }
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
  void begin(size_t rank) {
    SimulatedRank& of = result_.ranks[rank];
    if (measured_) {
      of.before = (*measured_)[rank].before;
    } else if (!times_.before.empty()) {
      of.before.end = times_.before[rank];
    }
    of.begin = of.before.begin;
    of.busy = of.before.end - of.before.begin;
    of.end = of.before.end;
  }

  // Whether the slot after this one reads what another rank sends.
  bool next_receives(const WalkedSlot& walked) const {
    const std::vector<Slot>& list = schedule_.lists[static_cast<size_t>(walked.rank)];
    const size_t next = static_cast<size_t>(walked.at) + 1;
    if (next >= list.size() || list[next].kind == SlotKind::kWeight) return false;
    const int from = list[next].chunk + (list[next].kind == SlotKind::kForward ? -1 : 1);
    return from >= 0 && from < schedule_.chunks &&
           holder_[static_cast<size_t>(from)] != walked.rank;
  }

  double end_of(int rank, int at) const {
    const auto place = static_cast<size_t>(at), of = static_cast<size_t>(rank);
    return measured_ ? (*measured_)[of].slots[place].end : result_.slots[of][place].end;
  }

  // The rounds after the slots; where they are not given, the barrier and the update.
  void run_end() {
    if (!times_.end.empty()) {
      for (const EndRound& round : times_.end) run_round(round);
      return;
    }
    double last = 0;
    for (const SimulatedRank& rank : result_.ranks) last = std::max(last, rank.end);
    for (SimulatedRank& rank : result_.ranks) {
      const double begin = times_.barrier ? last + times_.exchange : rank.end;
      if (times_.barrier) rank.end = begin;
      if (times_.update > 0) rank.after.push_back({begin, begin + times_.update});
    }
  }

  void run_round(const EndRound& round) {
    CHECK(round.seconds.size() == result_.ranks.size(), "a round has work of every rank");
    std::vector<double> done;
    for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
      SimulatedRank& of = result_.ranks[rank];
      if (round.seconds[rank] > 0) of.after.push_back({of.end, of.end + round.seconds[rank]});
      done.push_back(of.end += round.seconds[rank]);
    }
    for (const EndRound::Message& message : round.messages) {
      double& end = result_.ranks[static_cast<size_t>(message.to)].end;
      end = std::max(end, done[static_cast<size_t>(message.from)] + message.seconds);
    }
  }

  double seconds_of(const WalkedSlot& walked) const {
    if (!times_.slots.empty()) {
      return times_.slots[static_cast<size_t>(walked.rank)][static_cast<size_t>(walked.at)];
    }
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

  const Schedule& schedule_;
  std::vector<int> holder_;
  const SlotTimes& times_;
  const std::vector<MeasuredWalk>* measured_;
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

namespace {

Simulated walked(const Schedule& schedule, const SlotTimes& times,
                 const std::vector<MeasuredWalk>* measured) {
  Simulation simulation(schedule, times, measured);
  const bool trains =
      std::any_of(schedule.lists.begin(), schedule.lists.end(), [](const std::vector<Slot>& list) {
        return std::any_of(list.begin(), list.end(),
                           [](const Slot& slot) { return slot.kind != SlotKind::kForward; });
      });
  const auto fault = walk(schedule, trains, [&](const WalkedSlot& slot) { simulation.add(slot); });
  if (fault) fail("schedule '", schedule.name, "' cannot run: ", fault->message);
  return simulation.finish();
}

}  // namespace

Simulated simulate(const Schedule& schedule, const SlotTimes& times) {
  return walked(schedule, times, nullptr);
}

Simulated as_measured(const Schedule& schedule, const std::vector<MeasuredWalk>& ranks,
                      const SlotTimes& times) {
  return walked(schedule, times, &ranks);
}

}  // namespace adjoint
