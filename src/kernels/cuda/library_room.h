// Plans are also made without a GPU, so a library's workspace is planned from shapes, by sizes that
// were observed. If the library wants more, a kernel of our own runs the call within the planned
// workspace.
#pragma once
#include "base/bytes.h"

namespace adjoint {

// How much of the planned bytes a library is offered: all.
Bytes library_room(Bytes planned);

// For tests: never more than this, below 0 for none at all.
void set_library_room(Bytes most);

}  // namespace adjoint
