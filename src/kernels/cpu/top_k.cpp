#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// The order of a row: larger first, NaN after every number, then by index.
template <class W>
bool comes_before(W a, int64_t at_a, W b, int64_t at_b) {
  if (a > b) return true;
  if (b > a) return false;
  if (std::isnan(a) != std::isnan(b)) return std::isnan(b);
  return at_a < at_b;
}

// Each turn takes the first of those that come after the one before: n comparisons a choice, and
// nothing to remember.
template <class T>
void choose_row(const T* scores, int64_t n, int32_t* choice, int64_t k) {
  using W = typename Wide<T>::type;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i) {
      const W score = static_cast<W>(scores[i]);
      if (j > 0) {
        const int64_t previous = choice[j - 1];
        if (!comes_before(static_cast<W>(scores[previous]), previous, score, i)) continue;
      }
      if (best < 0 || comes_before(score, i, static_cast<W>(scores[best]), best)) best = i;
    }
    choice[j] = static_cast<int32_t>(best);
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type& scores = call.call.inputs[0];
  CHECK(call.in_strides[0] == dense_strides(scores), "scores are dense");
  const int64_t n = scores.dim(-1), step = scores.axes.back().physical();
  const int64_t k = call.call.integer("k"), rows = scores.num_elements() / n;
  const auto* from = static_cast<const T*>(at.in[0]);
  auto* to = static_cast<int32_t*>(at.out[0]);
  return [=] {
    parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) choose_row(from + r * step, n, to + r * k, k);
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace

extern const Kernel cpu_top_k = {
    .op = "top_k",
    .prepare = kernel,
};

}  // namespace adjoint
