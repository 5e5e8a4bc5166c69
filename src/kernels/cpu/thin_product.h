// Products of a few rows by a matrix whose rows lie side by side: what a token needs. The matrix is
// read once, as it lies, and widened in registers, so that nothing but memory is waited for.
#pragma once
#include "kernels/product.h"
#include "ops/quantize.h"

namespace adjoint {

// By shape and dtype alone: c[m, n] with m of at most kThinRows, sums along contiguous rows.
constexpr int64_t kThinRows = 8;
bool is_thin(const Product& product);
Bytes thin_workspace(const Product& product);
Launch prepare_thin(const Product& product, const void* a, const void* b, const void* bias, void* c,
                    void* workspace);

// The same where the matrix is int8 codes with scales: x[m, k] by dense codes[n, k].
struct ThinCodes {
  CodeShape shape;
  int64_t m = 1;
  int64_t x_step = 1, y_step = 1;  // from row to row
  Dtype dtype = Dtype::kF32;       // of x, the bias and y
  Dtype scale_dtype = Dtype::kF32;
};
Bytes thin_workspace(const ThinCodes& product);
Launch prepare_thin(const ThinCodes& product, const void* x, const void* codes, const void* scales,
                    const void* bias, void* y, void* workspace);

}  // namespace adjoint
