#include "analysis/totals.h"

#include "ops/op_def.h"

namespace adjoint {

int64_t num_parameters(const Scheme& scheme) {
  int64_t count = 0;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) count += scheme[in].type.num_elements();
  }
  return count;
}

std::array<double, 3> flops_by_phase(const Scheme& scheme) {
  std::array<double, 3> flops = {};
  for (const Morphism& m : scheme.morphisms) {
    const double times = m.section == Section::kBody ? scheme.parts : 1;
    flops[static_cast<size_t>(m.phase)] +=
        times * static_cast<double>(count_flops(call_of(scheme, m)));
  }
  return flops;
}

}  // namespace adjoint
