// After section 3 of Qi et al. (2024), by code of our own. A rank that is free takes a backward
// slot if its gradient is there, else a forward one as long as it may go ahead, and fills gaps with
// weights' gradients, which also give memory back. How far a rank may go ahead, how much of a
// weight slot a gap must hold and how far weights may lag behind are tried in all combinations; the
// best lists by the simulator are taken.
#include "schedules/automatic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"

namespace adjoint {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1e-9;  // of sums of shares and times, so that rounding decides nothing

// What a step costs, in seconds: with a barrier until all ranks are done, else the longest time of
// a rank's own; and, to choose among equals, until all ranks are done.
using Cost = std::pair<double, double>;
bool better(const Cost& a, const Cost& b) {
  const double rounding = 1e-9 * a.first;
  if (a.first < b.first - rounding) return true;
  return a.first <= b.first + rounding && a.second < b.second;
}

// By the simulator, until the last slot: what comes after it is the same for all lists.
Cost cost_of(const Schedule& schedule, const SlotTimes& times) {
  SlotTimes slots = times;
  slots.update = slots.exchange = 0;
  slots.slots.clear();
  slots.before.clear();
  slots.end.clear();
  const Simulated simulated = simulate(schedule, slots);
  return {times.barrier ? simulated.seconds : simulated.own_seconds, simulated.seconds};
}

// One way to decide.
struct Habits {
  double ahead = 1;      // forward slots before the first backward one: 1 as in 1F1B, 2 as in ZB-H2
  double least_gap = 1;  // of a weight slot's time, for it to be put into a gap
  // Weights' gradients may be so many parts behind the backward slots, per rank before it and on
  // every rank.
  double lag = 0, lag_of_all = 0;
};

class Greedy {
 public:
  Greedy(int ranks, int parts, const SlotTimes& times, double limit, const Habits& habits)
      : parts_(parts), times_(times), limit_(limit), habits_(habits) {
    schedule_ = {.name = "zb_auto", .ranks = ranks, .parts = parts, .chunks = ranks};
    schedule_.lists.resize(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      const double left = ranks - rank;
      State state;
      const double most = std::min<double>(parts, limit);
      const double ahead = std::floor(habits.ahead * left - (habits.ahead - 1) + kSlack);
      state.ahead = static_cast<int>(std::clamp(ahead, 1.0, std::max(1.0, most)));
      state.activation.assign(static_cast<size_t>(parts), rank == 0 ? 0 : kNever);
      state.gradient.assign(static_cast<size_t>(parts), kNever);
      state.share = share_of(static_cast<size_t>(rank));
      ranks_.push_back(std::move(state));
    }
  }

  // By its own clock, which is the simulator's but for `beside`: whether a slot is longer depends
  // on the one that is chosen next.
  Cost cost() {
    for (;;) {
      const auto next =
          std::min_element(ranks_.begin(), ranks_.end(),
                           [](const State& a, const State& b) { return a.time < b.time; });
      if (next->time == kNever) break;
      act(static_cast<size_t>(next - ranks_.begin()));
    }
    Cost result{0, 0};
    for (const State& state : ranks_) {
      CHECK(state.weights == parts_, "every rank comes to its end");
      result.second = std::max(result.second, state.free);
      result.first = std::max(result.first, state.free - state.begin);
    }
    if (times_.barrier) result.first = result.second;
    return result;
  }
  const Schedule& schedule() const { return schedule_; }
  Schedule take() { return std::move(schedule_); }

 private:
  struct State {
    double time = 0;             // when it acts next
    double begin = 0, free = 0;  // when its first slot began, and when its last one ended
    int forward = 0, backward = 0, weights = 0;  // slots so far
    int ahead = 1;
    double share = 1;
    std::vector<double> activation = {}, gradient = {};  // per part: when it is there

    double kept() const { return (forward - backward) + share * (backward - weights); }
  };

  double share_of(size_t chunk) const {
    if (times_.kept.empty() || times_.kept_for_weights.empty() || times_.kept[chunk] <= 0) return 1;
    return std::clamp(static_cast<double>(times_.kept_for_weights[chunk]) /
                          static_cast<double>(times_.kept[chunk]),
                      0.0, 1.0);
  }

  static double at(const std::vector<double>& arrivals, int part) {
    return part < static_cast<int>(arrivals.size()) ? arrivals[static_cast<size_t>(part)] : kNever;
  }

  void act(size_t rank) {
    State& me = ranks_[rank];
    const double now = me.time;
    const double gradient = at(me.gradient, me.backward);
    const bool may_go_ahead = me.forward - me.backward < me.ahead;
    const bool fits = me.kept() + 1 <= limit_ + kSlack;
    const double activation = may_go_ahead ? at(me.activation, me.forward) : kNever;
    const bool has_weights = me.weights < me.backward;
    if (gradient <= now) return work(rank, SlotKind::kBackward);
    const double behind = me.backward - me.weights;
    if (has_weights && behind > habits_.lag * static_cast<double>(rank) + habits_.lag_of_all) {
      return work(rank, SlotKind::kWeight);
    }
    if (activation <= now && fits) return work(rank, SlotKind::kForward);
    // A gap, until what is known to come.
    const double next = std::min(gradient, fits ? activation : kNever);
    const bool wants_room = activation <= now && !fits;
    if (has_weights && (wants_room || next - now >= habits_.least_gap * times_.weight[rank])) {
      return work(rank, SlotKind::kWeight);
    }
    me.time = next;
  }

  void work(size_t rank, SlotKind kind) {
    State& me = ranks_[rank];
    int* count[] = {&me.forward, &me.backward, &me.weights};
    const std::vector<double>* seconds[] = {&times_.forward, &times_.backward, &times_.weight};
    const size_t which = static_cast<size_t>(kind);
    const int part = (*count[which])++;
    if (schedule_.lists[rank].empty()) me.begin = me.time;
    schedule_.lists[rank].push_back({kind, part, static_cast<int>(rank)});
    me.free = me.time + (*seconds[which])[rank];
    me.time = me.weights == parts_ ? kNever : me.free;
    const size_t n = static_cast<size_t>(part);
    const bool last = rank + 1 == ranks_.size();
    if (kind == SlotKind::kForward && last) me.gradient[n] = me.free;
    if (kind == SlotKind::kForward && !last) {
      ranks_[rank + 1].activation[n] = me.free + times_.send;
      wake(rank + 1, me.free + times_.send);
    }
    if (kind == SlotKind::kBackward && rank > 0) {
      ranks_[rank - 1].gradient[n] = me.free + times_.send;
      wake(rank - 1, me.free + times_.send);
    }
  }

  void wake(size_t rank, double arrival) {
    State& other = ranks_[rank];
    if (other.weights < parts_) other.time = std::min(other.time, std::max(other.free, arrival));
  }

  int parts_;
  const SlotTimes& times_;
  double limit_;
  Habits habits_;
  std::vector<State> ranks_;
  Schedule schedule_;
};

// The most that a rank keeps, in parts.
double most_kept(const Schedule& schedule, const SlotTimes& times) {
  double most = 0;
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    const bool known =
        !times.kept.empty() && !times.kept_for_weights.empty() && times.kept[rank] > 0;
    const double share = known ? std::min(1.0, static_cast<double>(times.kept_for_weights[rank]) /
                                                   static_cast<double>(times.kept[rank]))
                               : 1;
    double now = 0;
    for (const Slot& slot : schedule.lists[rank]) {
      if (slot.kind == SlotKind::kForward) now += 1;
      most = std::max(most, now);
      if (slot.kind == SlotKind::kBackward) now -= 1 - share;
      if (slot.kind == SlotKind::kWeight) now -= share;
    }
  }
  return most;
}

}  // namespace

Schedule automatic_zero_bubble(int ranks, int parts, const SlotTimes& times, double memory_limit) {
  if (ranks < 1 || parts < 1) {
    fail("schedule zb_auto wants at least one rank and one part, found ", ranks, " and ", parts);
  }
  if (!(memory_limit >= 1)) {
    fail("schedule zb_auto wants memory for at least one part per rank, found ", memory_limit);
  }
  Schedule best;
  Cost best_cost{kNever, kNever};
  for (const char* name : {"zero_bubble", "zb_h2"}) {
    Schedule by_hand = make_schedule(name, ranks, parts, 1);
    if (most_kept(by_hand, times) > memory_limit + kSlack) continue;
    const Cost cost = cost_of(by_hand, times);
    if (better(cost, best_cost)) std::tie(best, best_cost) = std::pair(std::move(by_hand), cost);
  }
  const std::pair<double, double> lags[] = {{1, 0}, {2, 0}, {0, parts}};
  Habits best_habits;
  const auto consider = [&](double ahead) {
    for (const double least_gap : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      for (const auto& [lag, of_all] : lags) {
        const Habits habits{ahead, least_gap, lag, of_all};
        Greedy greedy(ranks, parts, times, memory_limit, habits);
        Cost cost = greedy.cost();
        if (times.beside != 0) cost = cost_of(greedy.schedule(), times);
        if (!better(cost, best_cost)) continue;
        best = greedy.take();
        best_cost = cost;
        best_habits = habits;
      }
    }
  };
  // How far to go ahead: in eighths, then finer around the best.
  constexpr double kMostAhead = 3;
  double step = 0.125;
  for (double ahead = 1; ahead <= kMostAhead; ahead += step) consider(ahead);
  for (; step * ranks >= 1; step /= 2) {
    const double middle = best_habits.ahead;
    consider(middle - step / 2);
    consider(middle + step / 2);
  }
  const double judged = cost_of(best, times).first;
  CHECK(std::abs(judged - best_cost.first) <= 1e-6 * judged, "its cost is the simulator's");
  best.name = "zb_auto";
  return best;
}

namespace {

struct SearchedEntry {
  std::string_view name;
  int parts_per_rank;  // that a rank has room for, times the number of ranks
};
constexpr SearchedEntry kSearched[] = {{"zb_1p", 1}, {"zb_2p", 2}};

const SearchedEntry* find_searched(std::string_view name) {
  const auto* entry = std::find_if(std::begin(kSearched), std::end(kSearched),
                                   [&](const SearchedEntry& each) { return each.name == name; });
  return entry == std::end(kSearched) ? nullptr : entry;
}

}  // namespace

bool is_searched(std::string_view name) { return find_searched(name) != nullptr; }

std::vector<std::string> searched_names() {
  std::vector<std::string> names;
  for (const SearchedEntry& entry : kSearched) names.emplace_back(entry.name);
  return names;
}

Schedule search_schedule(std::string_view name, int ranks, int parts, int per_rank,
                         const SlotTimes& times) {
  const SearchedEntry* entry = find_searched(name);
  CHECK(entry, "a schedule that is searched for: " + std::string(name));
  if (per_rank > 1) fail("schedule ", name, " is searched for one chunk a rank");
  Schedule schedule = automatic_zero_bubble(ranks, parts, times, entry->parts_per_rank * ranks);
  schedule.name = name;
  return schedule;
}

}  // namespace adjoint
