// A matrix product as libraries take it, for all ops that need one.
#pragma once
#include <optional>

#include "kernels/kernel.h"

namespace adjoint {

// c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n] (+ bias[n]), any strides,
// or the same added to c.
struct Product {
  // What a device may do with the sums before they leave its registers; the CPU has none of these.
  // gelu is the tanh approximation. `aux` has c's layout and dtype; the vectors have c's dtype.
  enum class Epilogue : uint8_t {
    kNone,
    kGelu,              // aux = a b (+ bias), c = gelu(aux)
    kGeluGrad,          // c = a b * gelu'(aux)
    kGeluGradBiasGrad,  // and bias_grad[n] = the sum of c over m
    kBiasGradA,         // bias_grad[m] = the sum of a over k
    kBiasGradB,         // bias_grad[n] = the sum of b over k
  };
  // Axes that do not merge into one m, n or k, such as a slice's; there is a product for each step
  // of them.
  struct Outer {
    int64_t size, a, b, c;  // strides
    bool summed;
  };
  std::vector<Outer> outer = {};
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> a_batch, b_batch, c_batch;  // strides
  int64_t a_m = 0, a_k = 0, b_k = 0, b_n = 0, c_m = 0, c_n = 0;
  Dtype dtype = Dtype::kF32;      // of a and b
  Dtype out_dtype = Dtype::kF32;  // of c
  bool bias = false;
  bool accumulate = false;  // c += a b
  bool tf32 = false;        // float32 operands may be rounded to 10 bits of mantissa, on CUDA
  Epilogue epilogue = Epilogue::kNone;
  // A larger workspace is avoided, by another implementation or by multiplying piece by piece.
  Bytes workspace_cap = kNoCap;
};

// The product for an index map such as "bsi,oi->bso", or nothing where its axes merge so badly that
// it would be too many products. With `padding`, axes have their physical length in all tensors:
// padding of the operands goes to padding of the result, and padding of a summed axis must be 0.
std::optional<Product> as_product(const std::string& map, const Type& a, const Strides& a_strides,
                                  const Type& b, const Strides& b_strides, const Type& c,
                                  const Strides& c_strides, bool padding = false);

}  // namespace adjoint
