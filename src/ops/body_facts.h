// What an op with a body leaves out, derived from the body.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

IndexMap body_index_map(const OpCall& call);
std::vector<std::pair<int, int>> body_may_overwrite(const OpCall& call);

}  // namespace adjoint
