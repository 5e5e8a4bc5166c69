// Gradients by central differences, for losses that a test writes out in float64.
#pragma once
#include <vector>

#include "kernels/harness.h"

namespace adjoint {

// loss(parameters) -> a number.
template <class Loss>
std::vector<Numbers> numeric_gradient(const std::vector<Numbers>& parameters, const Loss& loss) {
  constexpr double kStep = 1e-5;
  std::vector<Numbers> gradient, at = parameters;
  for (size_t k = 0; k < at.size(); ++k) {
    gradient.emplace_back(at[k].size());
    for (size_t i = 0; i < at[k].size(); ++i) {
      at[k][i] = parameters[k][i] + kStep;
      const double up = loss(at);
      at[k][i] = parameters[k][i] - kStep;
      gradient[k][i] = (up - loss(at)) / (2 * kStep);
      at[k][i] = parameters[k][i];
    }
  }
  return gradient;
}

}  // namespace adjoint
