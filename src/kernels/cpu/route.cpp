// Each row's chosen scores become weights, the others 0.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

template <class T>
void weigh_row(const T* scores, int64_t n, const int32_t* choice, int64_t k, T* weights) {
  using W = typename Wide<T>::type;
  const auto chosen = [&](int64_t j) { return std::clamp<int64_t>(choice[j], 0, n - 1); };
  const auto is_again = [&](int64_t j) {
    for (int64_t earlier = 0; earlier < j; ++earlier) {
      if (chosen(earlier) == chosen(j)) return true;
    }
    return false;
  };
  W highest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < k; ++j) highest = std::max(highest, static_cast<W>(scores[chosen(j)]));
  for (int64_t j = 0; j < k; ++j) {
    if (!is_again(j)) sum += std::exp(static_cast<W>(scores[chosen(j)]) - highest);
  }
  std::fill(weights, weights + n, static_cast<T>(W{0}));
  for (int64_t j = 0; j < k; ++j) {
    weights[chosen(j)] =
        static_cast<T>(std::exp(static_cast<W>(scores[chosen(j)]) - highest) / sum);
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type &scores = call.call.inputs[0], &choice = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(scores), "scores are dense");
  CHECK(call.in_strides[1] == dense_strides(choice), "the choice is dense");
  const int64_t n = scores.dim(-1), k = choice.dim(-1), rows = scores.num_elements() / n;
  const int64_t step = scores.axes.back().physical(), choice_step = choice.axes.back().physical();
  const int64_t to_step = call.outputs[0].axes.back().physical();
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* chosen = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<T*>(at.out[0]);
  return [=] {
    parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        weigh_row(from + r * step, n, chosen + r * choice_step, k, to + r * to_step);
      }
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace

extern const Kernel cpu_route = {
    .op = "route",
    .prepare = kernel,
};

}  // namespace adjoint
