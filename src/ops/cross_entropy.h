// What the cross entropy and its gradient share.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

void check_cross_entropy_operands(const OpCall& call);  // Error

}  // namespace adjoint
