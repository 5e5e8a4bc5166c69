#include "analysis/totals.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/structure.h"
#include "ops/op_def.h"
#include "scheme/shards.h"

namespace adjoint {

std::vector<int64_t> parameters_by_object(const Scheme& scheme) {
  std::map<Value, int64_t> encoded;
  const std::vector<int> made_by = producers(scheme);
  for (const Morphism& m : scheme.morphisms) {
    if (!op_named(m.op).decodes) continue;
    encoded[before_moves(scheme, made_by, m.inputs[0])] =
        whole_type(scheme[m.outputs[0]]).num_elements();
    encoded[before_moves(scheme, made_by, m.inputs[1])] = 0;
  }
  std::vector<int64_t> counts(scheme.objects.size(), 0);
  for (const Value in : scheme.inputs) {
    if (scheme[in].role != Role::kParameter) continue;
    const auto found = encoded.find(in);
    counts[in] = found == encoded.end() ? whole_type(scheme[in]).num_elements() : found->second;
  }
  return counts;
}

int64_t num_parameters(const Scheme& scheme) {
  const std::vector<int64_t> counts = parameters_by_object(scheme);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t num_trained(const Scheme& scheme) {
  int64_t count = 0;
  for (const Value in : scheme.inputs) {
    const Object& o = scheme[in];
    if (o.role == Role::kParameter && !o.frozen) count += whole_type(o).num_elements();
  }
  return count;
}

int64_t repeated_flops(const Scheme& scheme, const Morphism& m) {
  if (m.epoch == 0 && !m.attrs.count("repeated")) return 0;
  const OpCall call = call_of(scheme, m);
  const int64_t all = count_flops(call);
  return m.epoch > 0 ? all : std::min(all, call.integer("repeated", 0));
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
