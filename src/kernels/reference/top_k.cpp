#include <cmath>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every element counts those that come before it; its count is its place.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type scores = call.call.inputs[0];
  const int64_t n = scores.dim(-1), step = scores.axes.back().physical();
  const int64_t k = call.call.integer("k"), rows = scores.num_elements() / n;
  return [=] {
    for (int64_t r = 0; r < rows; ++r) {
      const auto score = [&](int64_t i) {
        const double x = load_element(at.in[0], scores.dtype, r * step + i);
        return std::isnan(x) ? -INFINITY : x;
      };
      const auto is_nan = [&](int64_t i) {
        return std::isnan(load_element(at.in[0], scores.dtype, r * step + i));
      };
      for (int64_t i = 0; i < n; ++i) {
        int64_t place = 0;
        for (int64_t other = 0; other < n; ++other) {
          const bool larger = score(other) > score(i) || (is_nan(i) && !is_nan(other));
          const bool equal = score(other) == score(i) && is_nan(i) == is_nan(other);
          place += larger || (equal && other < i);
        }
        if (place < k) store_element(at.out[0], Dtype::kI32, r * k + place, static_cast<double>(i));
      }
    }
  };
}

}  // namespace

extern const Kernel reference_top_k = {
    .op = "top_k",
    .prepare = reference,
};

}  // namespace adjoint
