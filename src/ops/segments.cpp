#include "ops/segments.h"

#include "base/error.h"
#include "ops/attention.h"

namespace adjoint {

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
  return forward;
}

}  // namespace adjoint
