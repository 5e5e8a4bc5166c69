// What kernels ask of a call of code_linear.
#pragma once
#include "ops/op_def.h"
#include "ops/quantize.h"

namespace adjoint {

CodeShape code_linear_shape(const OpCall& call);  // of its codes and scales

}  // namespace adjoint
