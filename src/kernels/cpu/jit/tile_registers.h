// Which value is in which vector register, while one block of straight-line code is generated. A
// value that must make room goes to its home in memory, the one that is read last first.
#pragma once
#include <algorithm>
#include <climits>
#include <vector>

#include "base/error.h"

namespace adjoint {

class TileRegisters {
 public:
  static constexpr int kFree = -1, kTaken = -2;

  // `reads`: per node, the places in the block where it is read, in order.
  TileRegisters(int count, std::vector<std::vector<int>> reads)
      : at_home(reads.size(), false),
        held_(count, kFree),
        locked_(count, false),
        where_(reads.size(), -1),
        reads_(std::move(reads)) {}

  int where(int node) const { return where_[node]; }
  void lock(int r) { locked_[r] = true; }
  void unlock_all() { std::fill(locked_.begin(), locked_.end(), false); }
  void hold(int r, int node) {
    held_[r] = node;
    where_[node] = r;
  }
  void free(int r) {
    if (held_[r] >= 0) where_[held_[r]] = -1;
    held_[r] = kFree;
  }
  // The next place from `place` on where the node is read, or INT_MAX.
  int next_read(int node, int place) const {
    for (const int at : reads_[node]) {
      if (at >= place) return at;
    }
    return INT_MAX;
  }
  // A register for something new; `evict(r, node)` is told of a value that has to leave it.
  template <class Evict>
  int take(int place, const Evict& evict) {
    int best = -1, furthest = -1;
    for (int r = 0; r < static_cast<int>(held_.size()); ++r) {
      if (locked_[r] || held_[r] == kTaken) continue;
      const int next = held_[r] == kFree ? INT_MAX : next_read(held_[r], place);
      if (held_[r] == kFree) {
        best = r;
        break;
      }
      if (next > furthest) furthest = next, best = r;
    }
    CHECK(best >= 0, "a vector register can be freed");
    if (held_[best] >= 0) {
      evict(best, held_[best]);
      free(best);
    }
    held_[best] = kTaken;
    most_ = std::max(most_, best + 1);
    return best;
  }
  int most() const { return most_; }

  std::vector<bool> at_home;  // per node: its home holds its value

 private:
  std::vector<int> held_;
  std::vector<bool> locked_;
  std::vector<int> where_;
  std::vector<std::vector<int>> reads_;
  int most_ = 0;
};

}  // namespace adjoint
