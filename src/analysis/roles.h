// What a parameter is, told from how it is used and never from its name.
#pragma once
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

enum class ParameterKind : uint8_t {
  kMatrix,  // an axis of it is summed against another operand: a linear map
  kTable,   // its rows are looked up by ids
  kVector,  // it scales or shifts: gains and biases
};

// For every object; meaningful for parameters. Used as a matrix anywhere, it is one (tied weights).
std::vector<ParameterKind> parameter_kinds(const Scheme& scheme);

}  // namespace adjoint
