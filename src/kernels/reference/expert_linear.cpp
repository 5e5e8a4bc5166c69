#include "ops/expert_linear.h"

#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every row looks its matrix up.
Launch reference(const KernelCall& k, const Pointers& at) {
  const ExpertLinearShape s = expert_linear_shape(k.call);
  const Type x = k.call.inputs[0], w = k.call.inputs[1], y = k.outputs[0];
  const int64_t x_step = x.axes.back().physical(), y_step = y.axes.back().physical();
  const Strides w_steps = dense_strides(w);
  const int64_t w_in = w_steps[s.transposed ? 1 : 2], w_out = w_steps[s.transposed ? 2 : 1];
  const int64_t bias_step = s.bias ? k.call.inputs[3].axes.back().physical() : 0;
  return [=] {
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t o = 0; o < s.out; ++o) {
        double total = 0;
        for (int64_t j = 0; j < s.chosen; ++j) {
          const int64_t row = t * s.chosen + j;
          const auto id = static_cast<int64_t>(load_element(at.in[2], Dtype::kI32, row));
          const int64_t expert = std::clamp<int64_t>(id, 0, s.experts - 1);
          double sum = s.bias ? load_element(at.in[3], x.dtype, expert * bias_step + o) : 0;
          for (int64_t i = 0; i < s.in; ++i) {
            sum += load_element(at.in[0], x.dtype, (s.x_each ? row : t) * x_step + i) *
                   load_element(at.in[1], w.dtype, expert * w_steps[0] + o * w_out + i * w_in);
          }
          total += sum;
          if (!s.sum) store_element(at.out[0], y.dtype, row * y_step + o, sum);
        }
        if (s.sum) store_element(at.out[0], y.dtype, t * y_step + o, total);
      }
    }
  };
}

}  // namespace

extern const Kernel reference_expert_linear = {
    .op = "expert_linear",
    .prepare = reference,
};

}  // namespace adjoint
