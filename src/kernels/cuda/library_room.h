// Plans are made where there is no GPU to ask, so what a library may want of a workspace is planned
// from shapes, by what it was seen to want. A library that wants more leaves the call to a kernel
// of our own, which works in what was planned too.
#pragma once
#include "base/bytes.h"

namespace adjoint {

// How much of the planned bytes a library is offered: all.
Bytes library_room(Bytes planned);

// For tests: never more than this, below 0 for none at all.
void set_library_room(Bytes most);

}  // namespace adjoint
