#pragma once
#include <string_view>

namespace adjoint {

// Wants `real` to be float or double.
std::string_view cuda_prelude();

}  // namespace adjoint
