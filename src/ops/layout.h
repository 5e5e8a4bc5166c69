// Whether a tensor's elements lie one behind the other.
#pragma once
#include "scheme/type.h"

namespace adjoint {

// An object of this type with these strides has no holes: steps of axes of size 1 are never taken.
bool lies_densely(const Type& type, const Strides& strides);

}  // namespace adjoint
