// What generated CUDA sources share.
#pragma once
#include <string>
#include <string_view>

#include "ops/body.h"

namespace adjoint {

// What a source begins with: the machine's instructions that CUDA's C++ has no words for, each as a
// function, so that another machine can say them its own way; then all that is written with them,
// which wants `real` to be float or double.
std::string_view cuda_instructions();
std::string_view cuda_prelude();

namespace cuda_source {
std::string_view element_of(Dtype dtype);
std::string literal(double value, bool wide);
// A node as an expression of its arguments.
std::string expression(const ExprNode& n, const std::string& a, const std::string& b,
                       const std::string& c);
}  // namespace cuda_source

}  // namespace adjoint
