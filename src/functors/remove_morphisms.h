// Removing morphisms that a functor has replaced by another one.
#pragma once
#include <algorithm>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// The scheme without these morphisms, and without objects that were theirs alone.
inline Scheme without(Scheme scheme, const std::vector<bool>& gone) {
  std::vector<Morphism> left;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    if (!gone[i]) left.push_back(std::move(scheme.morphisms[i]));
  }
  scheme.morphisms = std::move(left);
  return compact(std::move(scheme));
}

// `into` replaces `gone`: it takes over the objects that `gone` has to wait for. Morphisms that had
// to wait for `made`, a result that no longer exists, wait for `instead`.
inline void take_over_waits(Scheme& scheme, Morphism& into, const Morphism& gone, Value made,
                            Value instead) {
  into.after.insert(into.after.end(), gone.after.begin(), gone.after.end());
  for (Morphism& m : scheme.morphisms) {
    std::replace(m.after.begin(), m.after.end(), made, instead);
    std::vector<Value> once;
    for (const Value v : m.after) {
      if (!std::count(once.begin(), once.end(), v)) once.push_back(v);
    }
    m.after = std::move(once);
  }
}

}  // namespace adjoint
