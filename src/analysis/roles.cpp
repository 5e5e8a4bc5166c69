#include "analysis/roles.h"

#include <algorithm>

#include "ops/op_def.h"

namespace adjoint {

namespace {

ParameterKind kind_of_use(const IndexMap& map, size_t operand) {
  const std::string& mine = map.inputs[operand];
  for (const char c : mine) {
    if (!std::isalpha(static_cast<unsigned char>(c))) continue;
    const auto has = [&](const std::string& letters) {
      return letters.find(c) != std::string::npos;
    };
    if (std::any_of(map.outputs.begin(), map.outputs.end(), has)) continue;
    for (size_t other = 0; other < map.inputs.size(); ++other) {
      if (other != operand && has(map.inputs[other])) return ParameterKind::kMatrix;
    }
  }
  // Two axes of which one is reached only through ids.
  if (mine.size() == 2 && mine[0] == '.') return ParameterKind::kTable;
  return ParameterKind::kVector;
}

}  // namespace

std::vector<ParameterKind> parameter_kinds(const Scheme& scheme) {
  std::vector<ParameterKind> kinds(scheme.objects.size(), ParameterKind::kVector);
  for (const Morphism& m : scheme.morphisms) {
    if (m.phase != Phase::kForward) continue;
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      const Value v = m.inputs[i];
      if (scheme[v].role != Role::kParameter || kinds[v] == ParameterKind::kMatrix) continue;
      const ParameterKind kind = kind_of_use(index_map_of(call_of(scheme, m)), i);
      if (kind != ParameterKind::kVector) kinds[v] = kind;
    }
  }
  return kinds;
}

}  // namespace adjoint
