// cross_entropy(logits, targets), and later cross_entropy_grad of the same  ->  one morphism that
// gives the loss and its gradient, at the place of the loss. On a GPU the logits are then read from
// memory once instead of twice; nothing else is saved, so a CPU's steps are left alone. The
// gradient takes the place of the logits earlier than before, hence nobody else may read them.
#include <algorithm>

#include "functors/functor.h"
#include "functors/only_reader.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class LossPairs {
 public:
  explicit LossPairs(const Scheme& scheme)
      : scheme_(scheme), made_by_(producers(scheme)), reading_(scheme) {}

  // The gradient that belongs to a loss.
  std::optional<int> gradient_of(int loss) const {
    const Morphism& ce = scheme_.morphisms[loss];
    const OpDef& op = op_named(ce.op);
    if (op.loss_with_grad.empty()) return std::nullopt;
    const Value logits = ce.inputs[0], targets = ce.inputs[1], lse = ce.outputs[2];
    const auto found = reading_.only_reader(ce, lse);
    if (!found) return std::nullopt;
    const Morphism& grad = scheme_.morphisms[*found];
    if (grad.op != op.loss_grad || grad.inputs[0] != logits || grad.inputs[1] != targets ||
        grad.inputs[2] != lse || ignored(ce) != ignored(grad)) {
      return std::nullopt;
    }
    const auto is_other = [&](int reader) { return reader != loss && reader != *found; };
    const std::vector<int>& read_by = reading_.read_by[logits];
    if (reading_.stays[logits] || std::any_of(read_by.begin(), read_by.end(), is_other)) {
      return std::nullopt;
    }
    // The scale, and whatever else the gradient waits for, is there before the loss.
    const auto is_later = [&](Value v) { return made_by_[v] >= loss; };
    if (is_later(grad.inputs[3])) return std::nullopt;
    if (std::any_of(grad.after.begin(), grad.after.end(), is_later)) return std::nullopt;
    return found;
  }

 private:
  int64_t ignored(const Morphism& m) const { return ignored_target(call_of(scheme_, m)); }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  Reading reading_;
};

Scheme fuse_losses(Scheme scheme, Application& application) {
  std::vector<std::pair<size_t, int>> found;  // a loss and its gradient
  const LossPairs finder(scheme);
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    if (const auto grad = finder.gradient_of(static_cast<int>(i))) found.emplace_back(i, *grad);
  }
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const auto& [at, behind] : found) {
    const Morphism loss = scheme.morphisms[at],
                   grad = scheme.morphisms[behind];  // as they wait now
    // It makes a gradient, so it is counted as going back, and is the gradient by name.
    Morphism& both = scheme.morphisms[at] = grad;
    both.op = std::string(op_named(loss.op).loss_with_grad);
    both.inputs = {loss.inputs[0], loss.inputs[1], grad.inputs[3]};
    both.outputs = {loss.outputs[0], loss.outputs[1], grad.outputs[0]};
    // Whoever waited for the log-sums waits for what is made with them.
    take_over_waits(scheme, both, loss, loss.outputs[2], loss.outputs[0]);
    gone[behind] = true;
    ++application.matches;
  }
  return without(std::move(scheme), gone);
}

}  // namespace

extern const Functor functor_fuse_loss = {
    .name = "fuse_loss",
    .summary = "a loss and the gradient of its logits become one morphism",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, fuse_losses}},
};

}  // namespace adjoint
