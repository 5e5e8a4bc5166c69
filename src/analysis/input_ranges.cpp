#include "analysis/input_ranges.h"

#include <algorithm>
#include <set>

#include "ops/loss_count.h"

namespace adjoint {

namespace {

// Per object: the inputs that it is made from without floating-point arithmetic.
std::vector<std::set<Value>> inputs_behind(const Scheme& forward) {
  std::vector<std::set<Value>> from(forward.objects.size());
  for (const Value in : forward.inputs) {
    if (forward[in].role == Role::kInput) from[in] = {in};
  }
  for (const Morphism& m : forward.morphisms) {
    for (const Value out : m.outputs) {
      if (is_float(forward[out].type.dtype)) continue;
      for (const Value in : m.inputs) from[out].insert(from[in].begin(), from[in].end());
    }
  }
  return from;
}

}  // namespace

InputRanges input_ranges(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::map<Value, InputRange> ranges;
  const auto bound = [&](Value ids, int64_t below, std::optional<int64_t> ignored) {
    for (const Value in : from[ids]) {
      const auto [found, fresh] = ranges.emplace(in, InputRange{below, ignored});
      if (fresh) continue;
      found->second.below = std::min(found->second.below, below);
      // An input that a table is indexed by must hold valid ids everywhere.
      if (!ignored) found->second.ignored.reset();
    }
  };
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    if (op.table >= 0) bound(m.inputs[0], forward[m.inputs[op.table]].type.dim(0), std::nullopt);
    if (op.loss) {
      bound(m.inputs[op.targets], forward[m.inputs[0]].type.dim(-1),
            ignored_target(call_of(forward, m)));
    }
  }
  InputRanges by_path;
  for (const auto& [in, range] : ranges) by_path[forward[in].source.path] = range;
  return by_path;
}

std::set<std::string> inputs_computed_with(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::set<std::string> paths;
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    if ((!op.body || op.wide) && !says_body(m)) continue;
    for (const Value operand : m.inputs) {
      for (const Value in : from[operand]) {
        if (!is_float(forward[in].type.dtype)) paths.insert(forward[in].source.path);
      }
    }
  }
  return paths;
}

std::map<std::string, int64_t> ignored_values(const Scheme& forward) {
  const std::vector<std::set<Value>> from = inputs_behind(forward);
  std::map<std::string, int64_t> values;
  for (const Morphism& m : forward.morphisms) {
    const auto count = is_loss_term(m) ? loss_count(m) : std::nullopt;
    if (!count) continue;
    for (const Value in : from[count->targets]) {
      values.emplace(forward[in].source.path, ignored_target(call_of(forward, m)));
    }
  }
  return values;
}

}  // namespace adjoint
