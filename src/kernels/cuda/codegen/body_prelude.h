// What generated CUDA sources begin with.
#pragma once
#include <string_view>

namespace adjoint {

// The machine's instructions that CUDA's C++ has no words for, each as a function, so that another
// machine can say them its own way; then all that is written with them, which wants `real` to be
// float or double.
std::string_view cuda_instructions();
std::string_view cuda_prelude();

}  // namespace adjoint
