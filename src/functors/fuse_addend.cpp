// add(x, embed_grad(ids, dy))  ->  embed_grad(ids, dy, x): a table that two gradients meet in, as
// where readout and embedding share it. Sums of a few rows are added where the other gradient lies;
// a second table as large is neither written nor read.
#include <set>

#include "functors/functor.h"
#include "functors/only_reader.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

struct Addend {
  size_t sums;  // the morphism that makes the rows' sums
  int add;      // the one that adds the other gradient to them
  Value other;
};

std::vector<Addend> find_addends(const Scheme& scheme) {
  const Reading reading(scheme);
  std::vector<Addend> found;
  std::set<int> taken;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& sums = scheme.morphisms[i];
    const OpDef& op = op_named(sums.op);
    // Sums of rows, which cost little beside the table that they are sums in.
    if (op.multiplies || op.addend != static_cast<int>(sums.inputs.size())) continue;
    const Value made = sums.outputs[0];
    const auto reader = reading.only_reader(sums, made);
    if (!reader) continue;
    const Morphism& add = scheme.morphisms[*reader];
    if (add.op != "add" || taken.count(*reader)) continue;  // it is another table's sum already
    const Value other = add.inputs[0] == made ? add.inputs[1] : add.inputs[0];
    const auto fits = [&](Value v) {
      const Type &a = scheme[v].type, &b = scheme[made].type;
      return v != made && same_shape(a, b) && a.dtype == b.dtype;
    };
    if (!fits(other) || !fits(add.outputs[0])) continue;
    taken.insert(*reader);
    found.push_back({.sums = i, .add = *reader, .other = other});
  }
  return found;
}

Scheme fuse_addends(Scheme scheme, Application& application) {
  const std::vector<Addend> found = find_addends(scheme);
  if (found.empty()) return scheme;
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Addend& f : found) {
    const Morphism& sums = scheme.morphisms[f.sums];
    Morphism& both = scheme.morphisms[f.add];  // where the other gradient is there, too
    both.op = sums.op;
    both.inputs = {sums.inputs[0], sums.inputs[1], f.other};
    both.attrs = sums.attrs;
    // Whoever waited for the sums waits for what they are made of: what is added may be among them.
    take_over_waits(scheme, both, sums, sums.outputs[0], sums.inputs[1]);
    gone[f.sums] = true;
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
