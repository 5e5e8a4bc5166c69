#include "analysis/use_sums.h"

#include <algorithm>
#include <set>

#include "analysis/structure.h"
#include "ops/gradient_source.h"
#include "ops/op_def.h"

namespace adjoint {

std::vector<bool> summed_use_by_use(const Scheme& scheme) {
  std::vector<bool> apart;
  for (const Object& object : scheme.objects) apart.push_back(object.attributes.use_by_use);
  if (std::none_of(apart.begin(), apart.end(), [](bool said) { return said; })) return apart;
  std::set<std::string> made_of_parameters;  // sources
  const std::vector<bool> from_data = depends_on_data(scheme);
  for (const Morphism& m : scheme.morphisms) {
    for (const Value out : m.outputs) {
      const bool forward = m.phase == Phase::kForward && scheme[out].role == Role::kActivation;
      if (forward && !from_data[out]) made_of_parameters.insert(to_string(scheme[out].source));
    }
  }
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (std::none_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return apart[v]; })) {
      continue;
    }
    const bool adds = is_addition(call_of(scheme, m));
    for (const Value in : m.inputs) {
      const Object& o = scheme[in];
      const bool leads = o.role == Role::kGradient &&
                         made_of_parameters.count(to_string(owner_of_gradient(o.source))) > 0;
      if (adds || leads) apart[in] = true;
    }
  }
  return apart;
}

}  // namespace adjoint
