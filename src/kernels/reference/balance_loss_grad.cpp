#include "kernels/kernel.h"
#include "ops/balance_loss.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch reference(const KernelCall& call, const Pointers& at) {
  const Type load = call.call.inputs[1], dsum = call.call.inputs[2], out = call.outputs[0];
  const BalanceShape s = balance_shape(out, call.call.inputs[1]);
  const int64_t step = out.axes.back().physical(), load_step = load.axes.back().physical();
  const bool targets = call.call.inputs.size() > 3;
  const auto ignore = static_cast<double>(ignored_target(call.call));
  return [=] {
    const double factor = load_element(at.in[2], dsum.dtype, 0);
    for (int64_t row = 0; row < s.sequences * s.positions; ++row) {
      const bool counts = !targets || load_element(at.in[3], Dtype::kI32, row) != ignore;
      for (int64_t e = 0; e < s.experts; ++e) {
        const double slope = load_element(at.in[1], load.dtype, row / s.positions * load_step + e);
        store_element(at.out[0], out.dtype, row * step + e, counts ? factor * slope : 0);
      }
    }
  };
}

}  // namespace

extern const Kernel reference_balance_loss_grad = {
    .op = "balance_loss_grad",
    .prepare = reference,
};

}  // namespace adjoint
