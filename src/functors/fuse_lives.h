// How many bytes live at each place of the order, so that a group which would hold more at once
// than its members did one after another is refused.
#pragma once
#include <vector>

#include "functors/fuse_groups.h"

namespace adjoint {

class Lives {
 public:
  explicit Lives(const Groups& groups);

  // Whether `joined`, at its place, may stand for groups `a` and `c`, with `late` calls right
  // behind it. If so its bytes are counted, and the caller replaces the groups; if too much would
  // live at once, nothing changes.
  bool admit(const Group& a, const Group& c, const Group& joined, const std::vector<int>& late);

 private:
  struct Joining;
  struct Life {
    int first = 0, last = -1;  // places; empty: not counted
  };
  Life life_of(Value v, const Joining* joining) const;
  int64_t bytes_of(Value v) const;
  int64_t most_around(int place, int other) const;

  const Groups& groups_;
  std::vector<Value> grown_from_;  // per object: see analysis/accumulators.h
  std::vector<int64_t> live_;      // bytes, by place
  int64_t most_ = 0;
  bool repeats_products_ = false;
};

}  // namespace adjoint
