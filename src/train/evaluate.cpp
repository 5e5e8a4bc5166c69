#include "train/evaluate.h"

#include <vector>

#include "train/trainer.h"

namespace adjoint {

namespace {

// The id that the loss does not count.
int32_t ignored_id(const Scheme& forward) {
  for (const Morphism& m : forward.morphisms) {
    if (op_named(m.op).loss) return static_cast<int32_t>(ignored_target(call_of(forward, m)));
  }
  return -1;
}

}  // namespace

std::optional<double> mean_loss(Run& evaluation, std::span<const int32_t> all,
                                const std::atomic<bool>& stop) {
  const Scheme& s = evaluation.scheme();
  const Value tokens_in = input_named(s, "tokens"), targets_in = input_named(s, "targets");
  const int64_t batch = s[tokens_in].type.dim(0), context = s[tokens_in].type.dim(1);
  std::vector<int32_t> tokens(batch * context), targets(batch * context);
  const int64_t windows = (static_cast<int64_t>(all.size()) - 1) / context;
  const int32_t ignored = ignored_id(s);
  double sum = 0, count = 0;
  // Rows of the last batch that have no window count for nothing.
  for (int64_t first = 0; first < windows; first += batch) {
    if (stop) return std::nullopt;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t window = std::min(first + row, windows - 1);
      for (int64_t i = 0; i < context; ++i) {
        tokens[row * context + i] = all[window * context + i];
        targets[row * context + i] =
            first + row < windows ? all[window * context + i + 1] : ignored;
      }
    }
    evaluation.write(tokens_in, tokens.data());
    evaluation.write(targets_in, targets.data());
    evaluation.step();
    sum += evaluation.number(s.outputs[0]);
    count += evaluation.number(s.outputs[1]);
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace adjoint
