// Room behind the elements of an axis (Axis::padded): who can do with it.
#pragma once
#include <vector>

#include "ops/op_def.h"

namespace adjoint {

// Whether kernels take room behind the rows of every floating operand and result, of each its own
// width; of a matrix also behind the last row. What lies there may be anything.
bool takes_padding(const OpDef& op);

// Whether both have as much room along every axis.
bool same_room(const Type& a, const Type& b);

// Per object: a floating one of rows, which only such calls read and make.
std::vector<bool> may_be_padded(const Scheme& scheme);

}  // namespace adjoint
