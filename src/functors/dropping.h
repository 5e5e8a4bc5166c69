// What a functor leaves when it has put one morphism in the place of several.
#pragma once
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
  return compact(scheme);
}

}  // namespace adjoint
