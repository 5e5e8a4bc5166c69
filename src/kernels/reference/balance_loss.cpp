#include "ops/balance_loss.h"

#include <algorithm>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// As the formula is written: shares and means of one expert after another.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type p = call.call.inputs[0], choice = call.call.inputs[1];
  const BalanceShape s = balance_shape(p, call.outputs[2]);
  const int64_t step = p.axes.back().physical(), k = choice.dim(-1);
  const int64_t load_step = call.outputs[2].axes.back().physical();
  const bool targets = call.call.inputs.size() > 2;
  const auto ignore = static_cast<double>(ignored_target(call.call));
  const Dtype out = call.outputs[0].dtype;
  return [=] {
    double sum = 0, count = 0;
    for (int64_t q = 0; q < s.sequences; ++q) {
      const auto counts = [&](int64_t i) {
        return !targets || load_element(at.in[2], Dtype::kI32, q * s.positions + i) != ignore;
      };
      double positions = 0;
      for (int64_t i = 0; i < s.positions; ++i) positions += counts(i);
      if (positions > 0) count += 1;
      for (int64_t e = 0; e < s.experts; ++e) {
        double chosen = 0, probability = 0;
        for (int64_t i = 0; i < s.positions; ++i) {
          if (!counts(i)) continue;
          const int64_t row = q * s.positions + i;
          probability += load_element(at.in[0], p.dtype, row * step + e);
          for (int64_t j = 0; j < k; ++j) {
            const auto id = static_cast<int64_t>(load_element(at.in[1], Dtype::kI32, row * k + j));
            chosen += std::clamp<int64_t>(id, 0, s.experts - 1) == e;
          }
        }
        const double share = positions > 0 ? chosen / (positions * static_cast<double>(k)) : 0;
        const double mean = positions > 0 ? probability / positions : 0;
        const auto experts = static_cast<double>(s.experts);
        sum += experts * share * mean;
        store_element(at.out[2], out, q * load_step + e,
                      positions > 0 ? experts * share / positions : 0);
      }
    }
    store_element(at.out[0], out, 0, sum);
    store_element(at.out[1], out, 0, count);
  };
}

}  // namespace

extern const Kernel reference_balance_loss = {
    .op = "balance_loss",
    .prepare = reference,
};

}  // namespace adjoint
