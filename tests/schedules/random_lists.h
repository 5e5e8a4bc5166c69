// Random schedules that can run: the ranks' lists of a walk in which a random rank takes a random
// slot that is ready, messages of each lane met in the order in which they were sent.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <tuple>

#include "schedules/schedule.h"

namespace adjoint {

class RandomLists {
 public:
  // Chunks are dealt out in turns, or to random ranks, as many to each.
  RandomLists(std::mt19937& random, int ranks, int parts, int per_rank) : random_(random) {
    schedule_ = {.name = "random", .ranks = ranks, .parts = parts, .chunks = ranks * per_rank};
    schedule_.lists.resize(ranks);
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk) holder_.push_back(chunk % ranks);
    if (below(2) == 0) std::shuffle(holder_.begin(), holder_.end(), random_);
    weights_ = below(3);
    in_order_ = below(2) == 0;
  }

  Schedule made() {
    for (int part = 0; part < schedule_.parts; ++part) put({SlotKind::kForward, part, 0}, -1);
    for (std::vector<Slot> ready = ready_slots(); !ready.empty(); ready = ready_slots()) {
      do_slot(ready[below(ready.size())]);
    }
    return schedule_;
  }

 private:
  using Lane = std::tuple<int, int, SlotKind>;  // from, to; what it carries
  size_t below(size_t n) { return random_() % n; }

  // What may be done when everything before it in its lane has been; -1: made here.
  void put(const Slot& slot, int from) {
    const int to = holder_[slot.chunk];
    if (from < 0 || from == to) {
      own_[to].push_back(slot);
    } else {
      lanes_[{from, to, slot.kind}].push_back(slot);
    }
  }

  std::vector<Slot> ready_slots() const {
    std::vector<Slot> ready;
    for (const auto& [lane, slots] : lanes_) {
      if (!slots.empty()) ready.push_back(slots.front());
    }
    for (const auto& [rank, slots] : own_) ready.insert(ready.end(), slots.begin(), slots.end());
    if (!in_order_) return ready;
    // Of one kind and chunk the earliest part alone.
    std::erase_if(ready, [&](const Slot& slot) {
      const auto next = next_.find({slot.kind, slot.chunk});
      return slot.part != (next == next_.end() ? 0 : next->second);
    });
    return ready;
  }

  void do_slot(const Slot& slot) {
    const int rank = holder_[slot.chunk];
    schedule_.lists[rank].push_back(slot);
    ++next_[{slot.kind, slot.chunk}];
    std::erase(own_[rank], slot);
    for (auto& [lane, slots] : lanes_) {
      if (!slots.empty() && slots.front() == slot) slots.pop_front();
    }
    if (slot.kind == SlotKind::kForward) {
      if (slot.chunk + 1 < schedule_.chunks) {
        put({SlotKind::kForward, slot.part, slot.chunk + 1}, rank);
      } else {
        put({SlotKind::kBackward, slot.part, slot.chunk}, -1);
      }
    } else if (slot.kind == SlotKind::kBackward) {
      if (slot.chunk > 0) put({SlotKind::kBackward, slot.part, slot.chunk - 1}, rank);
      // None apart, all, or any.
      const bool apart = weights_ == 1 || (weights_ == 2 && !in_order_ && below(2) == 0);
      if (apart) put({SlotKind::kWeight, slot.part, slot.chunk}, -1);
    }
  }

  std::mt19937& random_;
  Schedule schedule_;
  std::vector<int> holder_;  // per chunk
  size_t weights_ = 0;
  bool in_order_ = false;
  std::map<Lane, std::deque<Slot>> lanes_;
  std::map<int, std::vector<Slot>> own_;
  std::map<std::pair<SlotKind, int>, int> next_;
};

}  // namespace adjoint
