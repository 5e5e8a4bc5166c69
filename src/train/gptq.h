// Codes of a linear map's weight, chosen by what the map does to data (Frantar et al., "GPTQ",
// 2022). Columns are rounded one after another, and what a column's rounding changes in the results
// is made up for by the columns that are still to come. With H = X^T X of the map's inputs X, the
// best correction follows from the factor U of the inverse, H^-1 = U^T U, U upper triangular.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ops/quantize.h"

namespace adjoint {

// A matrix as codes with scales, in the layout that `dequantize` reads.
struct EncodedMatrix {
  std::vector<std::byte> codes;
  std::vector<float> scales;
};

// To the nearest code, every number by itself.
EncodedMatrix round_to_codes(std::span<const float> matrix, const Type& type,
                             const CodeFormat& format);

// `type` is [out, in], and `hessian` the sum over samples of x x^T, in by in. The scale of a group
// is set when its first column is reached, a row's or the tensor's at the beginning.
EncodedMatrix gptq(std::span<const float> matrix, const Type& type, const CodeFormat& format,
                   std::vector<double> hessian);

// The numbers that the codes stand for.
std::vector<float> decoded(const EncodedMatrix& encoded, const Type& type,
                           const CodeFormat& format);

// The mean over rows of what the map's results change by, squared: tr(D H D^T), D = a - b.
double output_error(std::span<const float> a, std::span<const float> b, const Type& type,
                    std::span<const double> hessian);

}  // namespace adjoint
