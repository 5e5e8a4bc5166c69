// Messages from one rank to another along an axis of the mesh: `send` and `receive`. Their
// attributes: `mesh`, the axis; `ranks`, how many it has; `to` or `from`, the other rank's
// coordinate on it. Messages between two ranks arrive in the order in which they were sent. A send
// gives a number that nobody reads. What is received says its type, `shape` and `dtype`, and of
// several objects of one type how many, `count`; they travel together.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Which rank along the axis is spoken to.
int64_t other_rank(const OpCall& call);

}  // namespace adjoint
