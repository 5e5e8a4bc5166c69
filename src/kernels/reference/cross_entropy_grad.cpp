// softmax(logits) minus the target's one, a row at a time.
#include <cmath>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], targets = k.call.inputs[1];
  const int64_t classes = logits.dim(-1), step = logits.axes.back().physical();
  const double ignore = static_cast<double>(k.call.integer("ignore", -1));
  const Dtype lse_dtype = k.call.inputs[2].dtype, scale_dtype = k.call.inputs[3].dtype;
  return [=] {
    for (int64_t r = 0; r < targets.num_elements(); ++r) {
      const double target = load_element(at.in[1], targets.dtype, r);
      const double lse = load_element(at.in[2], lse_dtype, r);
      const double scale = target == ignore ? 0 : load_element(at.in[3], scale_dtype, 0);
      for (int64_t c = 0; c < classes; ++c) {
        const double p = std::exp(load_element(at.in[0], logits.dtype, r * step + c) - lse);
        const double hit = static_cast<double>(c) == target;
        store_element(at.out[0], logits.dtype, r * step + c, scale * (p - hit));
      }
    }
  };
}

}  // namespace

extern const Kernel reference_cross_entropy_grad = {
    .op = "cross_entropy_grad",
    .prepare = reference,
};

}  // namespace adjoint
