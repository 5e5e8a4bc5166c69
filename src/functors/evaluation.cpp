#include "functors/evaluation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
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

constexpr std::string_view kTargets = "targets";

bool is_targets(const Scheme& forward, Value v) {
  return forward[v].role == Role::kInput && forward[v].source == Source{std::string(kTargets)};
}

// The targets at their own places: themselves, or what is chosen among them element by element.
// Shifted ones are those of other places.
bool are_targets(const Scheme& forward, const std::vector<int>& made_by, Value v) {
  if (is_targets(forward, v)) return true;
  if (made_by[v] < 0) return false;
  const Morphism& m = forward.morphisms[made_by[v]];
  if (!is_row_op(op_named(m.op)) || body_of(call_of(forward, m)).needs_whole_rows()) return false;
  return std::any_of(m.inputs.begin(), m.inputs.end(),
                     [&](Value in) { return are_targets(forward, made_by, in); });
}

// The first loss that predicts the next token. Where no input is called targets, the first of all.
size_t first_loss(const Scheme& forward, std::string_view purpose) {
  const std::vector<int> made_by = producers(forward);
  const bool text = std::any_of(forward.inputs.begin(), forward.inputs.end(),
                                [&](Value in) { return is_targets(forward, in); });
  std::vector<std::string> others;
  for (size_t i = 0; i < forward.morphisms.size(); ++i) {
    const Morphism& m = forward.morphisms[i];
    const OpDef& op = op_named(m.op);
    if (!op.loss) continue;
    if (!text || are_targets(forward, made_by, m.inputs[op.targets])) return i;
    others.push_back("'" + m.source.path + "'");
  }
  if (others.empty()) fail("a model to ", purpose, " has a cross_entropy, this one has none");
  fail("a model to ", purpose, " has a cross_entropy of ", kTargets, ", the next tokens; ",
       join(others, ", "), others.size() == 1 ? " predicts" : " predict", " something else");
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
