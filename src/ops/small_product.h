// Small matrix products on one thread, for blocks that are in cache already.
#pragma once
#include <cstdint>

namespace adjoint {

// c[m, n] (+)= a[m, k] * b[k, n]; a has any strides, b and c have unit stride along n.
struct SmallProduct {
  int64_t m, n, k;
  int64_t a_row, a_k, b_row, c_row;
  bool accumulate = false;
};
void small_product(const SmallProduct& shape, const float* a, const float* b, float* c);
void small_product(const SmallProduct& shape, const double* a, const double* b, double* c);

}  // namespace adjoint
