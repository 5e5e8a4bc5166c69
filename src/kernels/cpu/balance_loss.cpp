// A thread takes whole sequences; their losses are added up in order.
#include "ops/balance_loss.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// One sequence: the rows of its probabilities, its choices and, maybe, its targets.
template <class T, class W>
struct BalancedSequence {
  BalanceShape shape;
  int64_t step, chosen, ignore;
  const T* p;
  const int32_t *choice, *targets;

  bool counts(int64_t i) const { return !targets || targets[i] != ignore; }

  // Fills the load, and returns the loss; nothing where no position counts.
  std::optional<W> loss(W* load) const {
    std::fill(load, load + shape.experts, W{0});
    int64_t positions = 0;
    for (int64_t i = 0; i < shape.positions; ++i) {
      if (!counts(i)) continue;
      ++positions;
      for (int64_t j = 0; j < chosen; ++j) {
        ++load[std::clamp<int64_t>(choice[i * chosen + j], 0, shape.experts - 1)];
      }
    }
    if (positions == 0) return std::nullopt;
    const W scale = static_cast<W>(shape.experts) /
                    (static_cast<W>(positions) * static_cast<W>(positions * chosen));
    for (int64_t e = 0; e < shape.experts; ++e) load[e] *= scale;
    W sum = 0;
    for (int64_t i = 0; i < shape.positions; ++i) {
      if (!counts(i)) continue;
      W here = 0;
      for (int64_t e = 0; e < shape.experts; ++e) here += load[e] * static_cast<W>(p[i * step + e]);
      sum += here;
    }
    return sum;
  }
};

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  using W = typename Wide<T>::type;
  const Type &p = call.call.inputs[0], &choice = call.call.inputs[1];
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    CHECK(call.in_strides[i] == dense_strides(call.call.inputs[i]),
          "operands of balance_loss are dense");
  }
  const BalancedSequence<T, W> first{
      .shape = balance_shape(p, call.outputs[2]),
      .step = p.axes.back().physical(),
      .chosen = choice.dim(-1),
      .ignore = ignored_target(call.call),
      .p = static_cast<const T*>(at.in[0]),
      .choice = static_cast<const int32_t*>(at.in[1]),
      .targets = at.in.size() > 2 ? static_cast<const int32_t*>(at.in[2]) : nullptr};
  const int64_t load_step = call.outputs[2].axes.back().physical();
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto* load = static_cast<W*>(at.out[2]);
  auto* losses = static_cast<W*>(at.workspace);
  W* counts = losses + first.shape.sequences;
  return [=] {
    const BalanceShape& s = first.shape;
    parallel_for(s.sequences, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t q = begin; q < end; ++q) {
        BalancedSequence<T, W> here = first;
        here.p += q * s.positions * first.step;
        here.choice += q * s.positions * first.chosen;
        if (here.targets) here.targets += q * s.positions;
        const std::optional<W> loss = here.loss(load + q * load_step);
        losses[q] = loss.value_or(W{0});
        counts[q] = loss ? W{1} : W{0};
      }
    });
    W total = 0, counted = 0;
    for (int64_t q = 0; q < s.sequences; ++q) {
      total += losses[q];
      counted += counts[q];
    }
    *sum = total;
    *count = counted;
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace

extern const Kernel cpu_balance_loss = {
    .op = "balance_loss",
    .prepare = kernel,
    .workspace =
        [](const KernelCall& call) {
          const BalanceShape s = balance_shape(call.call.inputs[0], call.outputs[2]);
          return 2 * s.sequences * size_of(call.outputs[0].dtype);
        },
};

}  // namespace adjoint
