#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every element of the table looks for its rows.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Type ids = k.call.inputs[0], dy = k.call.inputs[1], out = k.outputs[0];
  const int64_t from_step = dy.axes.back().physical();
  const Strides to = k.out_strides[0];
  const bool adds = at.in.size() > 2;
  const Strides addend = adds ? k.in_strides[2] : to;
  return [=] {
    for (int64_t row = 0; row < out.dim(0); ++row) {
      for (int64_t c = 0; c < out.dim(1); ++c) {
        double sum = 0;
        if (adds) sum = load_element(at.in[2], out.dtype, row * addend[0] + c * addend[1]);
        for (int64_t i = 0; i < ids.num_elements(); ++i) {
          const auto id = static_cast<int64_t>(load_element(at.in[0], ids.dtype, i));
          if (std::clamp<int64_t>(id, 0, out.dim(0) - 1) != row) continue;
          sum += load_element(at.in[1], dy.dtype, i * from_step + c);
        }
        store_element(at.out[0], out.dtype, row * to[0] + c * to[1], sum);
      }
    }
  };
}

}  // namespace

extern const Kernel reference_embed_grad = {
    .op = "embed_grad",
    .prepare = reference,
};

}  // namespace adjoint
