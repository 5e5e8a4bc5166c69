#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch reference(const KernelCall& call, const Pointers& at) {
  const Type x = call.call.inputs[0], ids = call.call.inputs[1], y = call.outputs[0];
  const int64_t n = x.dim(-1), k = ids.dim(-1);
  return [=] {
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      const auto id = static_cast<int64_t>(load_element(at.in[1], Dtype::kI32, i));
      const int64_t from = i / k * x.axes.back().physical() + std::clamp<int64_t>(id, 0, n - 1);
      store_element(at.out[0], y.dtype, i / k * y.axes.back().physical() + i % k,
                    load_element(at.in[0], x.dtype, from));
    }
  };
}

}  // namespace

extern const Kernel reference_gather = {
    .op = "gather",
    .prepare = reference,
};

}  // namespace adjoint
