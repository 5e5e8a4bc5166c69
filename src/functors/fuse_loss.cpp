// cross_entropy(logits, targets), and later cross_entropy_grad of the same  ->  one morphism that
// gives the loss and its gradient, at the place of the loss. On a GPU the logits are then read from
// memory once instead of twice; nothing else is saved, so a CPU's steps are left alone. The
// gradient takes the place of the logits earlier than before, hence nobody else may read them.
#include <algorithm>

#include "analysis/pattern.h"
#include "functors/functor.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

bool has_joint_op(const Graph&, const Morphism& m) {
  return !op_named(m.op).loss_with_grad.empty();
}

// Whether a call is the gradient of the loss that makes these log-sums, and nobody else needs the
// logits.
bool ends_loss(const Graph& graph, const Morphism& grad, Value lse) {
  const int at = graph.maker(lse);
  if (at < 0 || !is_gradient_of_loss(graph.scheme(), grad, graph.call(at))) return false;
  const Value logits = grad.inputs[0];
  const auto is_other = [&](int reader) { return reader != at && &graph.call(reader) != &grad; };
  const std::vector<int>& readers = graph.readers(logits);
  if (graph.stays(logits) || std::any_of(readers.begin(), readers.end(), is_other)) return false;
  // The scale, and whatever else the gradient waits for, is there before the loss.
  const auto is_later = [&](Value v) { return graph.maker(v) >= at; };
  return !is_later(grad.inputs[3]) && std::none_of(grad.after.begin(), grad.after.end(), is_later);
}

Scheme fuse_losses(Scheme scheme, Application& application) {
  const auto any = [](const Graph&, const Morphism&) { return true; };
  const Pattern pattern = {
      any, {{.made_by = {has_joint_op}, .result = 2, .only = true, .fits = ends_loss}}};
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Match& found : find_joins(Graph(scheme), pattern)) {
    const Morphism grad = scheme.morphisms[found[0]], loss = scheme.morphisms[found[1]];
    // It makes a gradient, so it is counted as going back, and is the gradient by name.
    Morphism& both = scheme.morphisms[found[1]] = grad;
    both.op = std::string(op_named(loss.op).loss_with_grad);
    both.inputs = {loss.inputs[0], loss.inputs[1], grad.inputs[3]};
    both.outputs = {loss.outputs[0], loss.outputs[1], grad.outputs[0]};
    // Whoever waited for the log-sums waits for what is made with them.
    take_over_waits(scheme, both, loss, loss.outputs[2], loss.outputs[0]);
    gone[found[0]] = true;
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
