// The float64 product of the reference against a sum written out, for letters in every place.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "kernels/reference/product.h"

namespace adjoint {
namespace {

std::vector<double> random_numbers(int64_t n, uint64_t which) {
  const RandomStream stream{random_key(3, "product"), which};
  std::vector<double> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = stream.normal(i);
  return numbers;
}

// c[b, m, n] = sum over k, l of a[m, k, b, l] b[b, l, n, k] (+ addend[n, b, m]), odd sizes: tiles
// that are not full, letters that lie in another order in each tensor, and two summed ones.
TEST(ReferenceProduct, IsTheSumWrittenOut) {
  for (const auto& [batch, m, n, k, l] : std::vector<std::array<int64_t, 5>>{
           {1, 1, 1, 1, 1}, {2, 5, 9, 3, 2}, {1, 4, 8, 7, 1}, {3, 1, 17, 1, 4}, {2, 6, 3, 5, 3}}) {
    const std::vector<double> a = random_numbers(m * k * batch * l, 1),
                              b = random_numbers(batch * l * n * k, 2),
                              addend = random_numbers(n * batch * m, 3);
    const std::vector<ProductLetter> kept = {
        {.size = batch, .a = l, .b = l * n * k, .c = m * n, .addend = m},
        {.size = m, .a = k * batch * l, .b = 0, .c = n, .addend = 1},
        {.size = n, .a = 0, .b = k, .c = 1, .addend = batch * m}};
    const std::vector<ProductLetter> summed = {
        {.size = k, .a = batch * l, .b = 1, .c = 0, .addend = 0},
        {.size = l, .a = 1, .b = n * k, .c = 0, .addend = 0}};
    for (const bool adds : {false, true}) {
      std::vector<double> c(batch * m * n, NAN);
      const int64_t bytes = float64_product_workspace(kept, summed).count;
      std::vector<double> panels(bytes / sizeof(double), NAN);
      Pointers at{.in = {a.data(), b.data()}, .out = {c.data()}, .workspace = panels.data()};
      if (adds) at.in.push_back(addend.data());
      prepare_float64_product(kept, summed, at)();
      for (int64_t x = 0; x < batch; ++x) {
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = adds ? addend[(j * batch + x) * m + i] : 0;
            for (int64_t s = 0; s < k; ++s) {
              for (int64_t t = 0; t < l; ++t) {
                sum += a[((i * k + s) * batch + x) * l + t] * b[((x * l + t) * n + j) * k + s];
              }
            }
            EXPECT_NEAR(c[(x * m + i) * n + j], sum, 1e-13 * (1 + std::abs(sum)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace adjoint
