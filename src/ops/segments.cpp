#include "ops/segments.h"

#include <algorithm>

#include "base/error.h"
#include "ops/attention.h"

namespace adjoint {

namespace {

// Counted positions of a row become data, [batch, seq]. What follows of them gets an axis of
// samples, as far as it had none.
Scheme with_positions(Scheme forward, Value tokens) {
  const Type ids = forward[tokens].type;
  std::vector<Value> counted;
  for (const Morphism& m : forward.morphisms) {
    const Type& made = forward[m.outputs[0]].type;
    if (m.op == "positions" && m.inputs.empty() && made.dim(0) == ids.dim(-1)) {
      counted.push_back(m.outputs[0]);
    }
  }
  if (counted.empty()) return forward;
  const Value positions =
      forward.add_input({.type = ids, .source = {.path = "positions"}, .role = Role::kInput});
  std::vector<bool> changed(forward.objects.size(), false);
  changed[positions] = true;
  for (Morphism& m : forward.morphisms) {
    for (Value& v : m.inputs) {
      if (std::count(counted.begin(), counted.end(), v)) v = positions;
    }
    if (std::none_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return changed[v]; })) {
      continue;
    }
    const std::vector<Type> types = infer_types(call_of(forward, m));
    for (size_t i = 0; i < types.size(); ++i) {
      Type& type = forward[m.outputs[i]].type;
      if (same_shape(type, types[i])) continue;
      type = types[i];
      changed[m.outputs[i]] = true;
    }
  }
  return without_dead(std::move(forward));
}

}  // namespace

Scheme with_segments(Scheme forward) {
  const auto tokens = forward.find({.path = "tokens"});
  if (!tokens) fail("documents are kept apart in a model of tokens[batch, seq], which this is not");
  auto segments = forward.find({.path = "segments"});
  bool attends = false;
  for (Morphism& m : forward.morphisms) {
    if (!op_named(m.op).attends) continue;
    attends = true;
    const OpCall call = call_of(forward, m);
    const AttentionOperands operands(call, call.inputs.size());
    if (operands.segments >= 0) continue;
    if (!segments) {
      segments = forward.add_input(
          {.type = forward[*tokens].type, .source = {.path = "segments"}, .role = Role::kInput});
    }
    // Of the operands only the random counter comes behind them.
    const auto place = m.inputs.end() - (operands.counter >= 0 ? 1 : 0);
    m.inputs.insert(place, *segments);
    m.attrs["segments"] = int64_t{1};
  }
  if (!attends) fail("documents are kept apart by attention, and this model has none");
  return with_positions(std::move(forward), *tokens);
}

}  // namespace adjoint
