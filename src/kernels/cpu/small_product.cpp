// The same text compiled for each instruction set, chosen at run time. (target_clones will not do:
// GCC lowers vector types before it clones.) Contraction to fused multiply-adds is on for this
// file: no functor ever splits or joins these products.
#include "kernels/cpu/small_product.h"

namespace adjoint {

#if defined(__x86_64__) && !defined(__clang__)
namespace avx512 {
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
constexpr int kWidth = 16, kRows = 12;  // 24 of 32 registers hold results
#include "kernels/cpu/small_product.inc"
#pragma GCC pop_options
}  // namespace avx512

namespace avx2 {
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
constexpr int kWidth = 8, kRows = 6;  // 12 of 16 registers hold results
#include "kernels/cpu/small_product.inc"
#pragma GCC pop_options
}  // namespace avx2
#endif

namespace portable {
constexpr int kWidth = 4, kRows = 4;
#include "kernels/cpu/small_product.inc"
}  // namespace portable

void small_product(const SmallProduct& shape, const float* a, const float* b, float* c) {
#if defined(__x86_64__) && !defined(__clang__)
  static const auto best = __builtin_cpu_supports("x86-64-v4")   ? avx512::product
                           : __builtin_cpu_supports("x86-64-v3") ? avx2::product
                                                                 : portable::product;
  best(shape, a, b, c);
#else
  portable::product(shape, a, b, c);
#endif
}

void small_product(const SmallProduct& s, const double* a, const double* b, double* c) {
  for (int64_t j = 0; j < s.n; ++j) {
    const double* panel = b + j / kPanel * s.b_panel + j % kPanel;
    for (int64_t r = 0; r < s.m; ++r) {
      double sum = s.accumulate ? c[r * s.c_row + j] : 0;
      const SmallProduct::Span needed = s.needed(r, 1, j);
      for (int64_t i = needed.begin; i < needed.end; ++i)
        sum += a[r * s.a_row + i * s.a_k] * panel[i * s.b_row];
      c[r * s.c_row + j] = sum;
    }
  }
}

}  // namespace adjoint
