#include "functors/placement_said.h"

#include <algorithm>

#include "ops/axes.h"
#include "ops/gradient_source.h"

namespace adjoint {

PlacementSaid::PlacementSaid(const Scheme& scheme, const MeshAxis& axis,
                             const std::map<std::string, Share>& adopted)
    : scheme_(scheme), axis_(axis) {
  for (const Value in : scheme_.inputs) {
    const Object& object = scheme_[in];
    if (object.role != Role::kParameter) continue;
    std::optional<Share> share = of(in);
    const auto wanted = adopted.find(to_string(object.source));
    if (!share && wanted != adopted.end()) share = wanted->second;
    if (!share || !share->is_piece() || is_home(in)) continue;
    parameters_[to_string(object.source)] = {*share, object.type};
  }
}

std::optional<Share> PlacementSaid::of(Value v) const {
  const Placement* said = placement_over(scheme_[v], axis_.name);
  if (!said) return std::nullopt;
  return Share{said->spread, said->axis, said->segments};
}

bool PlacementSaid::is_home(Value v) const {
  const Placement* said = placement_over(scheme_[v], axis_.name);
  return said && said->home;
}

std::optional<Share> PlacementSaid::of_parameter(const Object& object) const {
  const bool itself = object.role == Role::kParameter;
  const Source parameter = itself ? object.source : owner_of_gradient(object.source);
  const auto fits = [&](const auto& known) { return same_shape(known.second.second, object.type); };
  auto found = parameters_.find(to_string(parameter));
  if (object.role == Role::kState && (found == parameters_.end() || !fits(*found))) {
    const std::string part_of = parameter.path + ":";
    found = std::find_if(parameters_.lower_bound(part_of), parameters_.end(), fits);
    if (found != parameters_.end() && !found->first.starts_with(part_of)) found = parameters_.end();
  }
  if (found == parameters_.end() || !fits(*found)) return std::nullopt;
  return found->second.first;
}

}  // namespace adjoint
