#include <algorithm>

#include "kernels/kernel.h"
#include "ops/expert_linear.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Every element looks for the rows of its expert.
Launch reference(const KernelCall& k, const Pointers& at) {
  const ExpertGradShape s = expert_grad_shape(k.call);
  const Type a = k.call.inputs[0], b = k.call.inputs[1], out = k.outputs[0];
  const int64_t a_step = a.axes.back().physical(), b_step = b.axes.back().physical();
  const Strides to = k.out_strides[0], from = s.addend ? k.in_strides[3] : to;
  return [=] {
    for (int64_t e = 0; e < s.experts; ++e) {
      for (int64_t p = 0; p < s.p; ++p) {
        for (int64_t q = 0; q < s.q; ++q) {
          double sum = 0;
          if (s.addend) {
            sum = load_element(at.in[3], out.dtype, e * from[0] + p * from[1] + q * from[2]);
          }
          for (int64_t row = 0; row < s.count(); ++row) {
            const auto id = static_cast<int64_t>(load_element(at.in[2], Dtype::kI32, row));
            if (std::clamp<int64_t>(id, 0, s.experts - 1) != e) continue;
            const int64_t token = row / s.chosen;
            sum += load_element(at.in[0], a.dtype, (s.a_each ? row : token) * a_step + p) *
                   load_element(at.in[1], b.dtype, (s.b_each ? row : token) * b_step + q);
          }
          store_element(at.out[0], out.dtype, e * to[0] + p * to[1] + q * to[2], sum);
        }
      }
    }
  };
}

}  // namespace

extern const Kernel reference_expert_linear_grad = {
    .op = "expert_linear_grad",
    .prepare = reference,
};

}  // namespace adjoint
