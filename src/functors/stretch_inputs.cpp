#include "functors/stretch_inputs.h"

#include <algorithm>

namespace adjoint {

std::vector<Value> stretch_inputs(const Scheme& scheme, const std::vector<int>& made_by, int at) {
  const Morphism& first = scheme.morphisms[at];
  std::vector<Value> values;
  for (const Value in : first.inputs) {
    const int maker = made_by[in];
    if (maker < 0 || scheme.morphisms[maker].phase != first.phase) continue;
    if (std::count(values.begin(), values.end(), in) == 0) values.push_back(in);
  }
  if (!values.empty()) return values;
  for (int i = at; i-- > 0;) {
    const Morphism& earlier = scheme.morphisms[i];
    if (earlier.section != first.section) break;
    if (earlier.phase < first.phase) return {earlier.outputs[0]};
  }
  return {};
}

}  // namespace adjoint
