// A call of an op for `count` positions of a sequence, instead of all of them at once. They begin
// at an origin that is data, one for each sample, so that one step serves every place of a
// sequence. What earlier positions left is kept by position, and never by how recently it came: to
// repeat a position, or to pass one that does not count and comes again later, changes nothing.
#pragma once
#include <functional>

#include "ops/builder.h"

namespace adjoint {

struct CarryCall {
  Builder& builder;
  const OpCall& call;             // of all positions
  std::span<const Value> inputs;  // of `count` positions
  int axis;                       // of operand 0, or of result 0 where there are no operands
  int64_t context, count;         // all positions, and those of one step
  int64_t most;                   // of any step that goes on from the same state
  Value origin;                   // i32[batch]
  // State [batch, before + context, ...], zeros at first, into which `rows`, [batch, count, ...],
  // are written from row before + origin on. Of a ring there are as many rows as it says, and a
  // position has the row of its remainder. Its source is the call's, with this facet.
  struct Kept {
    int64_t before = 0, ring = 0;
  };
  std::function<Value(Value rows, std::string_view facet, const Kept& as)> keep;

  // The origin as [batch, 1, 1, ...], to be stretched over an object of this rank.
  Value origin_beside(size_t rank) const;
};

// Ops without operands that count positions along the first axis of their shape: the same call, for
// every sample by itself.
std::vector<Value> carry_counted_positions(CarryCall& carry);
// The number of a position in such an op's body, where the axis is the n-th from the end.
Expr counted_position(Body& body, const OpCall& call, int axis_from_end);
// Checks what such an op was given, and says how many axes stand before that of positions: none, or
// the samples.
int axes_before_positions(const OpCall& call);

}  // namespace adjoint
