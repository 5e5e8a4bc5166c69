// Small matrix products on one thread, for blocks that are in cache already. Written by hand:
// oneDNN cannot skip the tiles outside a triangle, which is half of causal attention.
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
  // Tiles outside of a triangle, in which row r has `visible` + r columns, are skipped. The
  // triangle may be the result (whose elements outside are then not written), a, or a transposed (a
  // must then hold zeros outside).
  enum class Triangle : uint8_t { kNone, kResult, kLeft, kLeftTransposed };
  Triangle triangle = Triangle::kNone;
  int64_t visible = 0;

  // What of k the rows [row, row + rows) of the result need, if anything.
  struct Span {
    int64_t begin, end;
  };
  Span needed(int64_t row, int64_t rows, int64_t column) const {
    const int64_t last = visible + row + rows - 1;  // columns of its longest row
    switch (triangle) {
      case Triangle::kResult:
        return {0, column < last ? k : 0};
      case Triangle::kLeft:
        return {0, last < 0 ? 0 : last < k ? last : k};
      case Triangle::kLeftTransposed:
        return {row < visible ? 0 : row - visible + 1, k};
      default:
        return {0, k};
    }
  }
};
void small_product(const SmallProduct& shape, const float* a, const float* b, float* c);
void small_product(const SmallProduct& shape, const double* a, const double* b, double* c);

}  // namespace adjoint
