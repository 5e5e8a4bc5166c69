// The bytes of an arena that an object's elements take: runs of one length at regular distances.
// Two regions are compared by their strides, without listing bytes, so that a plan of any size is
// checked quickly.
#pragma once
#include "plan/plan.h"

namespace adjoint {

struct Region {
  struct Step {
    int64_t stride, count;  // of bytes, and of runs
  };
  Tier tier = Tier::kDevice;
  int64_t begin = 0;
  std::vector<Step> steps = {};  // the longest stride first
  int64_t run = 0;               // bytes without a hole

  int64_t end() const;  // of the last run
};

// The elements of this type from `begin` on. Of a dense object, padding is part of the region.
Region region_of(const Type& type, const Strides& strides, Tier tier, Bytes begin);
Region region_of(const Scheme& scheme, const Plan& plan, Value v);
Region region_of(const Storage& storage);  // all of it

bool overlap(const Region& a, const Region& b);

}  // namespace adjoint
