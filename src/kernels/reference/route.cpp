#include <algorithm>
#include <cmath>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every expert asks whether it was chosen.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type scores = call.call.inputs[0], choice = call.call.inputs[1], out = call.outputs[0];
  const int64_t n = scores.dim(-1), k = choice.dim(-1), rows = scores.num_elements() / n;
  const int64_t step = scores.axes.back().physical(), choice_step = choice.axes.back().physical();
  const int64_t to_step = out.axes.back().physical();
  return [=] {
    for (int64_t r = 0; r < rows; ++r) {
      const auto score = [&](int64_t e) {
        return load_element(at.in[0], scores.dtype, r * step + e);
      };
      const auto is_chosen = [&](int64_t e) {
        for (int64_t j = 0; j < k; ++j) {
          const double id = load_element(at.in[1], Dtype::kI32, r * choice_step + j);
          if (id == static_cast<double>(e)) return true;
        }
        return false;
      };
      double highest = -INFINITY, sum = 0;
      for (int64_t e = 0; e < n; ++e) {
        if (is_chosen(e)) highest = std::max(highest, score(e));
      }
      for (int64_t e = 0; e < n; ++e) sum += is_chosen(e) ? std::exp(score(e) - highest) : 0;
      for (int64_t e = 0; e < n; ++e) {
        const double weight = is_chosen(e) ? std::exp(score(e) - highest) / sum : 0;
        store_element(at.out[0], out.dtype, r * to_step + e, weight);
      }
    }
  };
}

}  // namespace

extern const Kernel reference_route = {
    .op = "route",
    .prepare = reference,
};

}  // namespace adjoint
