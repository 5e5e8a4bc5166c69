// Rewritings of bodies that keep every bit of every result, in the CPU's reading and in the
// reference's.
#pragma once
#include <span>

#include "body/body.h"
#include "scheme/scheme.h"

namespace adjoint {

// An operand of the second of two bodies: a result of the first, or an operand of the joined body.
struct JoinOperand {
  bool made = false;  // by the first
  int number = 0;     // of the result, or of the operand
  Dtype dtype = {};   // of the object between them
};

// first; second  ->  one body over the same space: what the second read from memory it now reads
// from a register. The operands of the first keep their numbers; the results are those of the
// first, then those of the second. A value that lay in 16 bits between them is rounded to those.
Body join(const Body& first, const Body& second, std::span<const JoinOperand> operands);

// x*1, x/1, x-0, -(-x), a choice that is known, and arithmetic on constants where float32 and
// float64 agree. Not x+0: that of -0 is 0.
Body fold_exactly(const Body& body);

// A call of `map`: which of the operands it reads, in order, and its attributes, which say the
// space and the results' dtypes where the operands that are left do not imply them.
struct MapCall {
  std::vector<int> operands;
  Attrs attrs;
};
MapCall map_call(Body body, const std::vector<Axis>& space, const std::vector<Type>& inputs,
                 const std::vector<Type>& outputs);

bool same_sizes(const std::vector<Axis>& a, const std::vector<Axis>& b);

// Is the node the same all along the row, whatever the numbers are?
std::vector<bool> same_along_row(const Body& body, const std::vector<Axis>& space,
                                 const std::vector<Type>& inputs);

}  // namespace adjoint
