// loss(parameters)  ->  loss and its gradient with respect to every parameter that is not frozen.
// Reverse mode on the scheme: gradients are morphisms, so everything that transforms a scheme
// transforms them too. The sum of the loss is differentiated; one division by the count comes
// later.
#include "base/counts.h"
#include "base/error.h"
#include "functors/phases.h"
#include "ops/builder.h"

namespace adjoint {

Scheme apply_adjoint(const Scheme& forward) {
  if (forward.outputs.size() != 2 || forward[forward.outputs[0]].type.rank() != 0 ||
      forward[forward.outputs[1]].type.rank() != 0) {
    fail(forward.name,
         ": a model that is trained ends in a loss, the pair (sum, count) of a "
         "cross_entropy; this one gives ",
         counted(static_cast<int64_t>(forward.outputs.size()), "object"));
  }
  Scheme step = forward;
  Builder builder(step);
  const Value sum = forward.outputs[0];
  // The gradient of the loss itself: 1, or the loss scale. It is a tensor, so that it may change
  // from step to step.
  const Value scale = builder.control("scale", step[sum].type);
  step[scale].init = Init{.kind = Init::Kind::kOnes};

  std::vector<Value> trained;
  for (const Value in : step.inputs) {
    if (step[in].role == Role::kParameter && !step[in].frozen) trained.push_back(in);
  }
  if (trained.empty()) fail(forward.name, ": nothing is trained: every parameter is frozen");
  const std::pair<Value, Value> seeds[] = {{sum, scale}};
  const auto gradients =
      backpropagate(builder, 0, static_cast<int>(forward.morphisms.size()), seeds, trained);
  for (size_t i = 0; i < trained.size(); ++i) {
    if (!gradients[i]) {
      fail(to_string(step[trained[i]].source), ": this parameter has no influence on the loss");
    }
    step.outputs.push_back(*gradients[i]);
  }
  return compact(std::move(step));  // drops partial gradients that were joined
}

}  // namespace adjoint
