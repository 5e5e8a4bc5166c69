#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "ops/balance_loss.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  using W = typename Wide<T>::type;
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    CHECK(call.in_strides[i] == dense_strides(call.call.inputs[i]),
          "operands of balance_loss_grad are dense");
  }
  const BalanceShape s = balance_shape(call.outputs[0], call.call.inputs[1]);
  const int64_t step = call.outputs[0].axes.back().physical();
  const int64_t load_step = call.call.inputs[1].axes.back().physical();
  const int64_t ignore = ignored_target(call.call);
  const auto* load = static_cast<const W*>(at.in[1]);
  const void* dsum = at.in[2];
  const Dtype dsum_dtype = call.call.inputs[2].dtype;
  const auto* targets = at.in.size() > 3 ? static_cast<const int32_t*>(at.in[3]) : nullptr;
  auto* to = static_cast<T*>(at.out[0]);
  return [=] {
    const W factor = static_cast<W>(load_element(dsum, dsum_dtype, 0));
    parallel_for(s.sequences * s.positions, 256, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const W here = targets && targets[row] == ignore ? W{0} : factor;
        const W* slopes = load + row / s.positions * load_step;
        for (int64_t e = 0; e < s.experts; ++e) {
          to[row * step + e] = static_cast<T>(here * slopes[e]);
        }
      }
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace

extern const Kernel cpu_balance_loss_grad = {
    .op = "balance_loss_grad",
    .prepare = kernel,
};

}  // namespace adjoint
