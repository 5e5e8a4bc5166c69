// Rewrites of bodies that keep every bit of every result, on the CPU and in the reference.
#pragma once
#include <span>

#include "body/body.h"
#include "scheme/scheme.h"

namespace adjoint {

// An operand of the second of two bodies: a result of the first, or an operand of the joined body.
struct JoinOperand {
  bool made = false;  // the first body makes it
  int number = 0;     // of the result, or of the operand
  Dtype dtype = {};   // of the object between them
};

// first; second  ->  one body over the same space: what the second read from memory it now reads
// from a register. The operands of the first keep their numbers; the results are those of the
// first, then those of the second. A value that was stored in 16 bits between them is rounded to 16
// bits.
Body join(const Body& first, const Body& second, std::span<const JoinOperand> operands);

// x*1, x/1, x-0, -(-x), a choice that is known, and arithmetic on constants where float32 and
// float64 agree. Not x+0, because -0 + 0 is 0.
Body fold_exactly(const Body& body);

// A call of `map`: the operands that it reads, in order, and its attributes. They state the
// iteration space and the results' dtypes where the remaining operands do not imply them.
struct MapCall {
  std::vector<int> operands;
  Attrs attrs;
};
MapCall map_call(Body body, const std::vector<Axis>& space, const std::vector<Type>& inputs,
                 const std::vector<Type>& outputs);

bool same_sizes(const std::vector<Axis>& a, const std::vector<Axis>& b);

// Per node: whether it is the same all along the row, whatever the operands are.
std::vector<bool> same_along_row(const Body& body, const std::vector<Axis>& space,
                                 const std::vector<Type>& inputs);

}  // namespace adjoint
