// Whether a tensor's elements lie one behind the other, and who needs that.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// An object of this type with these strides has no holes: steps of axes of size 1 are never taken.
bool lies_densely(const Type& type, const Strides& strides);

// On this target the op takes dense operands and makes dense results. The CPU's products do, for
// their library chooses how to multiply by strides too, and with that the order of their sums: the
// same product would have other bits wherever a plan lays its operands inside other objects.
bool wants_dense(const OpDef& op, Target target);

}  // namespace adjoint
