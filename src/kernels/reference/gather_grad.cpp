#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every element looks for the ids that point to it.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type dy = call.call.inputs[0], dx = call.outputs[0];
  const int64_t n = dx.dim(-1), k = dy.dim(-1), rows = dy.num_elements() / std::max<int64_t>(k, 1);
  return [=] {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j) {
          const auto id = static_cast<int64_t>(load_element(at.in[1], Dtype::kI32, r * k + j));
          if (std::clamp<int64_t>(id, 0, n - 1) != i) continue;
          sum += load_element(at.in[0], dy.dtype, r * dy.axes.back().physical() + j);
        }
        store_element(at.out[0], dx.dtype, r * dx.axes.back().physical() + i, sum);
      }
    }
  };
}

}  // namespace

extern const Kernel reference_gather_grad = {
    .op = "gather_grad",
    .prepare = reference,
};

}  // namespace adjoint
