// softmax(logits) minus the target's one, a row at a time.
#include <cmath>

#include "kernels/kernel.h"
#include "kernels/row_numbers.h"
#include "ops/cross_entropy.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], targets = k.call.inputs[1];
  const int64_t classes = logits.dim(-1), step = logits.axes.back().physical();
  const int64_t to_step = k.outputs[0].axes.back().physical();
  const double ignore = static_cast<double>(k.call.integer("ignore", -1));
  const auto [smoothing, z, cap] = cross_entropy_options(k.call);
  const double share = smoothing / static_cast<double>(classes);
  const Dtype lse_dtype = k.call.inputs[2].dtype, scale_dtype = k.call.inputs[3].dtype;
  const RowNumbers log_sums(k.call.inputs[2]);
  return [=, smoothing = smoothing, z = z, cap = cap] {
    for (int64_t r = 0; r < targets.num_elements(); ++r) {
      const double target = load_element(at.in[1], targets.dtype, r);
      const double lse = load_element(at.in[2], lse_dtype, log_sums.at(r));
      const double scale = target == ignore ? 0 : load_element(at.in[3], scale_dtype, 0);
      for (int64_t c = 0; c < classes; ++c) {
        const double x = load_element(at.in[0], logits.dtype, r * step + c);
        const double bend = cap > 0 ? std::tanh(x / cap) : 0;
        const double p = std::exp((cap > 0 ? cap * bend : x) - lse);
        const double hit = static_cast<double>(c) == target ? 1 - smoothing : 0;
        const double slope = (p * (1 + 2 * z * lse) - hit - share) * (1 - bend * bend);
        store_element(at.out[0], logits.dtype, r * to_step + c, scale * slope);
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
