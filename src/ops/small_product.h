// Small matrix products on one thread, for blocks that are in cache already.
#pragma once
#include <cstdint>

namespace adjoint {

constexpr int64_t kPanel = 32;  // columns that lie together in b; n is a multiple of it

// c[m, n] (+)= a[m, k] * b[k, n]; a has any strides. Column j of b is at
// (j / kPanel) * b_panel + j % kPanel: a plain row-major b has b_panel = kPanel, a packed one has
// whole panels one after another, so that no two rows of a panel share a set of the cache.
struct SmallProduct {
  int64_t m, n, k;
  int64_t a_row, a_k, b_row, b_panel, c_row;
  bool accumulate = false;
};
void small_product(const SmallProduct& shape, const float* a, const float* b, float* c);
void small_product(const SmallProduct& shape, const double* a, const double* b, double* c);

}  // namespace adjoint
