// Compares every epilogue of a product, also those that no functor uses, with plain loops in
// float64. Skipped without a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "device/buffer.h"
#include "device/gpu.h"
#include "kernels/cuda/cublaslt/product.h"
#include "scheme/elements.h"

namespace adjoint {
namespace {

using Epilogue = Product::Epilogue;
using Numbers = std::vector<double>;

constexpr int64_t kM = 64, kN = 128, kK = 96;
constexpr Dtype kDtype = Dtype::kBF16;

Numbers random(int64_t count, const char* name) {  // as they are stored
  const RandomStream stream{random_key(1, name), 0};
  Numbers numbers(count);
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = BFloat16(static_cast<float>(stream.normal(i) / 8));
  }
  return numbers;
}

class Memory16 {  // numbers on the GPU
 public:
  Memory16(const Numbers& numbers, GpuStream& stream)
      : stream_(stream),
        host_(numbers.size() * size_of(kDtype).count),
        there_({static_cast<int64_t>(host_.size())}, Memory::kGpu) {
    for (size_t i = 0; i < numbers.size(); ++i) store_element(host_.data(), kDtype, i, numbers[i]);
    stream_.copy(there_.data(), host_.data(), there_.size());
    stream_.synchronize();
  }
  void* data() const { return there_.data(); }
  Numbers numbers() {
    stream_.copy(host_.data(), there_.data(), there_.size());
    stream_.synchronize();
    Numbers all(host_.size() / size_of(kDtype).count);
    for (size_t i = 0; i < all.size(); ++i) all[i] = load_element(host_.data(), kDtype, i);
    return all;
  }

 private:
  GpuStream& stream_;
  std::vector<std::byte> host_;
  Buffer there_;
};

double gelu(double x) {
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(inner));
}
double gelu_slope(double x) {
  constexpr double kStep = 1e-5;
  return (gelu(x + kStep) - gelu(x - kStep)) / (2 * kStep);
}

void expect_near(const Numbers& found, const Numbers& wanted, const char* what) {
  ASSERT_EQ(found.size(), wanted.size());
  double size = 0, error = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    size = std::max(size, std::abs(wanted[i]));
    error = std::max(error, std::abs(found[i] - wanted[i]));
  }
  EXPECT_LT(error, 1e-2 * size) << what;
}

void check(Epilogue epilogue) {
  GpuStream stream;
  const Numbers a = random(kM * kK, "a"), b = random(kK * kN, "b"), x = random(kM * kN, "aux");
  Product product{
      .batch = {}, .m = kM, .n = kN, .k = kK, .a_batch = {}, .b_batch = {}, .c_batch = {}};
  // A bias's gradient comes with a weight's gradient, whose first operand is column-major; the
  // library sums no other.
  const bool by_columns = epilogue == Epilogue::kBiasGradA || epilogue == Epilogue::kBiasGradB;
  product.a_m = by_columns ? 1 : kK, product.a_k = by_columns ? kM : 1;
  product.b_k = kN, product.b_n = 1, product.c_m = kN, product.c_n = 1;
  product.dtype = product.out_dtype = kDtype;
  product.epilogue = epilogue;
  const Memory16 at_a(a, stream), at_b(b, stream);
  Memory16 c(Numbers(kM * kN), stream), aux(x, stream), sums(Numbers(std::max(kM, kN)), stream);
  const Buffer workspace(product_cuda_workspace(product), Memory::kGpu);
  const auto launch = tuned_product_cuda(
      product,
      {.a = at_a.data(),
       .b = at_b.data(),
       .c = c.data(),
       .bias_grad = sums.data(),
       .aux = aux.data()},
      {.in = {}, .out = {}, .workspace = workspace.data(), .stream = stream.handle()}, true, false);
  ASSERT_TRUE(launch) << "the library has no algorithm";
  (*launch)();

  const auto element_of_a = [&](int64_t m, int64_t k) {
    return a[m * product.a_m + k * product.a_k];
  };
  Numbers y(kM * kN), kept = x, of_m(kM), of_n(kN);
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      double& sum = y[m * kN + n];
      for (int64_t k = 0; k < kK; ++k) sum += element_of_a(m, k) * b[k * kN + n];
      if (epilogue == Epilogue::kGelu) kept[m * kN + n] = sum, sum = gelu(sum);
      if (has_aux(epilogue) && epilogue != Epilogue::kGelu) sum *= gelu_slope(x[m * kN + n]);
      if (epilogue == Epilogue::kGeluGradBiasGrad) of_n[n] += sum;
    }
  }
  for (int64_t k = 0; k < kK; ++k) {
    for (int64_t m = 0; m < kM; ++m) of_m[m] += element_of_a(m, k);
    for (int64_t n = 0; n < kN && epilogue == Epilogue::kBiasGradB; ++n) of_n[n] += b[k * kN + n];
  }
  expect_near(c.numbers(), y, "the product");
  if (has_aux(epilogue)) expect_near(aux.numbers(), kept, "what is kept beside it");
  if (!is_bias_grad(epilogue)) return;
  const Numbers& wanted = epilogue == Epilogue::kBiasGradA ? of_m : of_n;
  Numbers found = sums.numbers();
  found.resize(wanted.size());
  expect_near(found, wanted, "the bias's gradient");
}

TEST(GpuProduct, EpiloguesAreWhatTheySay) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  for (const Epilogue epilogue :
       {Epilogue::kNone, Epilogue::kGelu, Epilogue::kGeluGrad, Epilogue::kGeluGradBiasGrad,
        Epilogue::kBiasGradA, Epilogue::kBiasGradB}) {
    SCOPED_TRACE(static_cast<int>(epilogue));
    check(epilogue);
  }
}

}  // namespace
}  // namespace adjoint
