#include "ops/cross_entropy.h"

#include <cmath>

#include "kernels/kernel.h"
#include "kernels/row_numbers.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// In plain loops, through strides, with nothing subtracted that float64 does not need.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], targets = k.call.inputs[1];
  const int64_t classes = logits.dim(-1), step = logits.axes.back().physical();
  const double ignore = static_cast<double>(k.call.integer("ignore", -1));
  const CrossEntropyOptions options = cross_entropy_options(k.call);
  const Dtype out = k.outputs[0].dtype;
  const RowNumbers log_sums(k.outputs[2]);
  return [=] {
    double sum = 0, count = 0;
    for (int64_t r = 0; r < targets.num_elements(); ++r) {
      const auto logit = [&](int64_t c) {
        const double x = load_element(at.in[0], logits.dtype, r * step + c);
        return options.cap > 0 ? options.cap * std::tanh(x / options.cap) : x;
      };
      double total = 0;
      for (int64_t c = 0; c < classes; ++c) total += std::exp(logit(c) - logit(0));
      const double lse = std::log(total) + logit(0);
      store_element(at.out[2], out, log_sums.at(r), lse);
      const double target = load_element(at.in[1], targets.dtype, r);
      if (target == ignore) continue;
      sum += lse - (1 - options.smoothing) * logit(static_cast<int64_t>(target));
      sum += options.z * lse * lse;
      for (int64_t c = 0; options.smoothing > 0 && c < classes; ++c) {
        sum -= options.smoothing / static_cast<double>(classes) * logit(c);
      }
      count += 1;
    }
    store_element(at.out[0], out, 0, sum);
    store_element(at.out[1], out, 0, count);
  };
}

}  // namespace

extern const Kernel reference_cross_entropy = {
    .op = "cross_entropy",
    .prepare = reference,
};

}  // namespace adjoint
