// A call of an op that can be split over ranks only if it is told where its piece begins
// (IndexMap::told): what each rank does instead, in ordinary ops.
#pragma once
#include <functional>

#include "ops/builder.h"

namespace adjoint {

class PiecesCall {
 public:
  Builder& builder;
  const OpCall& call;                    // of the operands as this rank has them
  std::span<const Value> inputs;         // pieces of those that have the letter, all of the others
  Value coordinate;                      // of the rank, one i32
  int64_t piece, whole;                  // how many the letter counts on a rank, and in all
  std::function<Value(Value)> gathered;  // [1, ...] of each rank -> [ranks, ...]

  // [...] -> [..., 1]
  Value as_rows(Value v) const {
    return builder.emit("unsqueeze", {v}, {{"axis", int64_t{builder.type(v).rank()}}});
  }
  // Ids as places in the rank's piece of the table; 0 for those of other ranks.
  Value ids_in_piece(Value ids) const;
  // Rows of the rank's own ids as they are, and zeros for those of others.
  Value zero_elsewhere(Value rows, Value ids) const;
};

}  // namespace adjoint
