// Counts that 64 bits may not hold, such as the operations of a product: they stay at the largest
// that is told, and are never below 0. And how a count is said.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace adjoint {

constexpr int64_t kMostCounted = 9'000'000'000'000'000'000;

inline int64_t product_of(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(product, factor, &product) || product > kMostCounted) {
      product = kMostCounted;
    }
  }
  return product;
}

inline int64_t sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) || sum > kMostCounted ? kMostCounted : sum;
}

// "1 thread", "2 threads".
inline std::string counted(int64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace adjoint
