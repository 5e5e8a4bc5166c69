// What the terms of a loss divide by. A count is taken of targets alone, so it is known before the
// backward pass begins, and two terms that count alike can share it.
#pragma once
#include <optional>

#include "ops/op_def.h"

namespace adjoint {

struct LossCount {
  std::string_view op;  // that counts: counted_by of the loss
  Value targets;
  Attrs attrs;  // the target that is ignored, where the loss says one
  bool operator==(const LossCount&) const = default;
};

inline bool is_loss_term(const Morphism& m) { return !op_named(m.op).counted_by.empty(); }

// Of a call for which is_loss_term holds; nothing where it was given no targets.
std::optional<LossCount> loss_count(const Morphism& loss);

}  // namespace adjoint
