// Whom an object is made for: where one morphism alone reads it, the two may become one.
#pragma once
#include <optional>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

struct Reading {
  explicit Reading(const Scheme& scheme)
      : scheme(scheme), read_by(readers(scheme)), stays(returned_or_carried(scheme)) {}

  // The only reader of what `maker` makes, in the same section and epoch. None where the object is
  // returned or carried: it must be there, whoever reads it.
  std::optional<int> only_reader(const Morphism& maker, Value made) const {
    if (stays[made] || read_by[made].size() != 1) return std::nullopt;
    const Morphism& reader = scheme.morphisms[read_by[made][0]];
    if (reader.section != maker.section || reader.epoch != maker.epoch) return std::nullopt;
    return read_by[made][0];
  }

  const Scheme& scheme;
  std::vector<std::vector<int>> read_by;  // per object
  std::vector<bool> stays;                // per object
};

}  // namespace adjoint
