#include "analysis/padding.h"

#include "base/error.h"

namespace adjoint {

namespace {

bool is_told_targets(const Morphism& m) {
  const int targets = op_named(m.op).targets;
  return targets >= 0 && targets < static_cast<int>(m.inputs.size());
}

std::string at(const Morphism& m) { return m.op + " at " + to_string(m.source); }

std::string advice(std::string_view unit) {
  return join_parts("choose a number of ", unit, "s that divides the batch");
}

}  // namespace

std::vector<std::set<int64_t>> ignored_targets(const Scheme& scheme) {
  std::vector<std::set<int64_t>> ignored(scheme.objects.size());
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    const OpDef& def = op_named(m.op);
    if (is_told_targets(m)) {
      ignored[m.inputs[def.targets]].insert(ignored_target(call_of(scheme, m)));
    } else if (def.view) {
      ignored[m.inputs[0]].insert(ignored[m.outputs[0]].begin(), ignored[m.outputs[0]].end());
    }
  }
  return ignored;
}

void check_sums_of_padded(const Morphism& m, std::string_view who, std::string_view unit) {
  if (m.phase != Phase::kForward || is_told_targets(m)) return;
  fail(who, ": ", at(m), " sums over all samples, and the last ", unit,
       " has some that do not count; ", advice(unit));
}

void check_targets_of_padded(const Scheme& scheme, const Morphism& m, std::string_view who,
                             std::string_view unit) {
  if (!is_told_targets(m)) return;
  Value v = m.inputs[op_named(m.op).targets];
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& maker = scheme.morphisms[i];
    if (maker.outputs[0] == v && op_named(maker.op).view) v = maker.inputs[0];
  }
  if (scheme[v].role == Role::kInput) return;
  fail(who, ": ", at(m), " counts by '", to_string(scheme[v].source),
       "', which is computed, and the last ", unit, " has samples that do not count; ",
       advice(unit));
}

}  // namespace adjoint
