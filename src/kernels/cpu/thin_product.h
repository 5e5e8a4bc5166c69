// Products of a few rows by a matrix whose rows lie side by side: what a token needs. The matrix is
// read once, as it lies, and widened in registers, so that nothing but memory is waited for.
#pragma once
#include <functional>
#include <span>

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

// The same where every row of x is multiplied by one of several matrices, [matrices, n, k] dense,
// and rows of one matrix follow one another: x's rows [starts[e], starts[e + 1]) by matrix e.
struct ThinChosen {
  int64_t rows = 1, matrices = 1, n = 1, k = 1;
  Dtype dtype = Dtype::kF32;  // of x and the matrices: f32 or bf16
};
bool is_thin(const ThinChosen& product);
Bytes thin_workspace(const ThinChosen& product);
// `row_of` says where a row of x lies. Results come in pieces, column `column` and those that
// follow of one row at a time, from any thread; those of one column are one thread's, in the order
// of rows.
void multiply_thin(
    const ThinChosen& product, const std::function<const void*(int64_t row)>& row_of,
    const int32_t* starts, const void* matrices, void* workspace,
    const std::function<void(int64_t row, int64_t column, std::span<const float> results)>& give);

}  // namespace adjoint
