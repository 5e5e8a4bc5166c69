// Parameters that are held in the dtype in which they are read.
#pragma once
#include <functional>

#include "scheme/scheme.h"

namespace adjoint {

// Every parameter that is read through casts to one dtype alone, and that may be, is held in that
// dtype, and the casts are gone; `matches` counts them. What the step carries stays as it is.
Scheme held_narrow(Scheme scheme, const std::function<bool(const Object&)>& may, int64_t& matches);

}  // namespace adjoint
