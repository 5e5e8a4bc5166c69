// The instructions of the CPU's tile programs: one vectorized loop each, over a piece of a row.
// Results may be written over operands: each element is read before it is written.
#pragma once
#include <cstdint>

#include "body/body.h"

namespace adjoint {

// Operands that are rows (v) or one number (s).
struct BinaryLoops {
  void (*vv)(float*, const float*, const float*, int64_t);
  void (*vs)(float*, const float*, float, int64_t);
  void (*sv)(float*, float, const float*, int64_t);
};
const BinaryLoops& binary_loops(ExprKind kind);

using UnaryLoop = void (*)(float*, const float*, int64_t);
UnaryLoop unary_loop(const ExprNode& node);  // nullptr: the identity

void choose(float* y, const float* a, const float* b, const float* c, int64_t n);
void accumulate(float* sum, const float* a, int64_t n);
void accumulate(double* sum, const float* a, int64_t n);
float reduce_sum(const float* a, int64_t n);
float reduce_max(const float* a, int64_t n);
// Uniform in [0, 1): elements first, first + 1, ... of the stream (base/philox.h).
void uniform(float* y, uint64_t key, uint64_t step, uint64_t first, int64_t n);

// Between memory of any dtype and stride, and a row of floats.
void gather_any(float* y, const void* from, Dtype dtype, int64_t offset, int64_t stride, int64_t n);
void scatter_any(void* to, Dtype dtype, const float* y, int64_t offset, int64_t stride, int64_t n);

}  // namespace adjoint
