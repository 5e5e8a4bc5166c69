// Which object owns every byte at every read, derived from the scheme, the order and the offsets
// alone.
#pragma once
#include <string>

#include "plan/plan.h"

namespace adjoint {

// A sentence about the first read of the step that does not find what was written for it; "" if
// every read does. An object owns its bytes from the call that makes it to the last call that reads
// it, over all iterations of the body. A landing owns its bytes always, and a workspace while its
// call runs. A collective runs until it must be done (plan/lanes.h), and reads its operands until
// then. A call may write into bytes that another object owns only if it is that object's last
// reader and may overwrite it.
std::string spoiled_read(const Scheme& scheme, const Plan& plan);

}  // namespace adjoint
