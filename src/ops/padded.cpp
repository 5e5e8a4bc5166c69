#include "ops/padded.h"

#include <algorithm>

namespace adjoint {

bool takes_padding(const OpDef& op) { return op.body || op.multiplies || op.takes_padding; }

bool same_room(const Type& a, const Type& b) {
  const auto alike = [](const Axis& x, const Axis& y) { return x.physical() == y.physical(); };
  return std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(), alike);
}

std::vector<bool> may_be_padded(const Scheme& scheme) {
  std::vector<bool> may;
  for (const Object& object : scheme.objects) {
    may.push_back(object.type.rank() >= 2 && is_float(object.type.dtype));
  }
  for (const Morphism& m : scheme.morphisms) {
    if (takes_padding(op_named(m.op))) continue;
    for (const auto* values : {&m.inputs, &m.outputs}) {
      for (const Value v : *values) may[v] = false;
    }
  }
  return may;
}

}  // namespace adjoint
