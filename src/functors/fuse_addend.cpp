// add(x, embed_grad(ids, dy))  ->  embed_grad(ids, dy, x): a table that two gradients meet in, as
// where readout and embedding share it. Sums of a few rows are added where the other gradient lies;
// a second table as large is neither written nor read.
#include <algorithm>

#include "analysis/pattern.h"
#include "functors/functor.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// Sums of rows, which cost little beside the table that they are sums in, and could be added to it.
bool sums_rows(const Graph&, const Morphism& m) {
  const OpDef& op = op_named(m.op);
  return !op.multiplies && op.addend == static_cast<int>(m.inputs.size());
}

// The sum of two tables of one type.
bool adds_tables(const Graph& graph, const Morphism& m) {
  const Scheme& scheme = graph.scheme();
  const auto is_alike = [&](Value v) {
    const Type &a = scheme[v].type, &b = scheme[m.outputs[0]].type;
    return same_shape(a, b) && a.dtype == b.dtype;
  };
  return is_addition(call_of(scheme, m)) && std::all_of(m.inputs.begin(), m.inputs.end(), is_alike);
}

Scheme fuse_addends(Scheme scheme, Application& application) {
  const Pattern pattern = {adds_tables, {{.made_by = {sums_rows}, .only = true}}};
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Match& found : find_joins(Graph(scheme), pattern)) {
    const Morphism& sums = scheme.morphisms[found[1]];
    Morphism& both = scheme.morphisms[found[0]];  // where the other gradient is there, too
    const Value made = sums.outputs[0];
    const Value other = both.inputs[0] == made ? both.inputs[1] : both.inputs[0];
    both.op = sums.op;
    both.inputs = sums.inputs;
    both.inputs.push_back(other);
    both.attrs = sums.attrs;
    // Whoever waited for the sums waits for what they are made of: what is added may be among them.
    take_over_waits(scheme, both, sums, made, sums.inputs[1]);
    gone[found[1]] = true;
    ++application.matches;
  }
  return without(std::move(scheme), gone);
}

}  // namespace

extern const Functor functor_fuse_addend = {
    .name = "fuse_addend",
    .summary = "an embedding's gradient is added where the table's other gradient lies",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact, fuse_addends}},
};

}  // namespace adjoint
