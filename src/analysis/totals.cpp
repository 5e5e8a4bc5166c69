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
    flops[static_cast<size_t>(m.phase)] += static_cast<double>(count_flops(call_of(scheme, m)));
  }
  return flops;
}

}  // namespace adjoint
