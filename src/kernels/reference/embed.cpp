#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// One element at a time, through the strides.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Type ids = k.call.inputs[0], table = k.call.inputs[1], out = k.outputs[0];
  const Strides from = k.in_strides[1],
                to = dense_strides({out.dtype, {{"n", 1}, out.axes.back()}});
  return [=] {
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      // What pads a batch may be an id that no row has; other targets clamp it, too.
      const auto id = static_cast<int64_t>(load_element(at.in[0], ids.dtype, i));
      const int64_t row = std::clamp<int64_t>(id, 0, table.dim(0) - 1);
      for (int64_t c = 0; c < table.dim(1); ++c) {
        store_element(at.out[0], out.dtype, i * to[0] + c,
                      load_element(at.in[1], table.dtype, row * from[0] + c * from[1]));
      }
    }
  };
}

}  // namespace

extern const Kernel reference_embed = {
    .op = "embed",
    .prepare = reference,
};

}  // namespace adjoint
