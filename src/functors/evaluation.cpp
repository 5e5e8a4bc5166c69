#include "functors/evaluation.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cross_entropy.h"

namespace adjoint {

Scheme without_randomness(const Scheme& forward) {
  Scheme result = forward;
  result.morphisms.clear();
  std::vector<Value> renamed(forward.objects.size());
  for (size_t v = 0; v < renamed.size(); ++v) renamed[v] = static_cast<Value>(v);
  for (Morphism m : forward.morphisms) {
    for (Value& in : m.inputs) in = renamed[in];
    const OpDef& def = op_named(m.op);
    const bool random = effect_of(call_of(forward, m)) == Effect::kRandom;
    if (random && !def.calm) {
      renamed[m.outputs[0]] = m.inputs[0];
      continue;
    }
    if (random) def.calm(m);
    result.morphisms.push_back(std::move(m));
  }
  for (Value& out : result.outputs) out = renamed[out];
  result = without_dead(std::move(result));
  verify(result);
  return result;
}

namespace {

size_t first_loss(const Scheme& forward, std::string_view purpose) {
  const auto loss = std::find_if(forward.morphisms.begin(), forward.morphisms.end(),
                                 [](const Morphism& m) { return op_named(m.op).loss; });
  if (loss == forward.morphisms.end()) {
    fail("a model to ", purpose, " has a cross_entropy, this one has none");
  }
  return loss - forward.morphisms.begin();
}

}  // namespace

Scheme logits_of(const Scheme& forward) {
  Scheme result = forward;
  const Morphism& loss = forward.morphisms[first_loss(forward, "sample from")];
  Builder b(result);
  b.at({loss.source.path + ".logits"}, Phase::kForward, Role::kActivation);
  result.outputs = {softmax_operand(b, loss)};
  return without_dead(std::move(result));
}

Scheme likelihood_of(const Scheme& forward) {
  Scheme result = forward;
  Morphism& loss = result.morphisms[first_loss(forward, "evaluate")];
  drop_training_terms(loss);
  result.outputs = {loss.outputs[0], loss.outputs[1]};
  return without_dead(std::move(result));
}

}  // namespace adjoint
