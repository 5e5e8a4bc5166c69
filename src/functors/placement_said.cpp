#include "functors/placement_said.h"

#include <algorithm>

#include "ops/axes.h"
#include "ops/gradient_source.h"
#include "ops/op_def.h"

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

bool is_kept_in_pieces(const Object& object) {
  const std::vector<Placement>& all = object.attributes.placement;
  return object.role == Role::kParameter && std::any_of(all.begin(), all.end(), [](auto& p) {
           return p.home && p.spread == Spread::kSharded;
         });
}

Scheme with_casts_before_joins(const Scheme& scheme) {
  const std::vector<int> made_by = producers(scheme);
  Scheme result = scheme;
  result.morphisms.clear();
  for (const Morphism& m : scheme.morphisms) {
    const int maker = m.inputs.empty() ? -1 : made_by[m.inputs[0]];
    const bool of_join = maker >= 0 &&
                         op_named(scheme.morphisms[maker].op).lies == LiesWithin::kJoins &&
                         is_cast(call_of(scheme, m));
    if (!of_join ||
        std::none_of(scheme.morphisms[maker].inputs.begin(), scheme.morphisms[maker].inputs.end(),
                     [&](Value v) { return made_by[v] < 0 && is_kept_in_pieces(scheme[v]); })) {
      result.morphisms.push_back(m);
      continue;
    }
    Morphism join = scheme.morphisms[maker];
    const Object& whole = scheme[m.outputs[0]];
    for (Value& in : join.inputs) {
      Object narrow = scheme[in];
      narrow.type.dtype = whole.type.dtype;
      narrow.source = with_facet(narrow.source, name(whole.type.dtype));
      narrow.init.reset();
      Morphism cast = m;
      cast.inputs = {in};
      in = result.add(std::move(narrow));
      cast.outputs = {in};
      cast.source = result[in].source;
      result.morphisms.push_back(std::move(cast));
    }
    join.outputs = m.outputs;
    join.phase = m.phase, join.epoch = m.epoch, join.section = m.section, join.after = m.after;
    result.morphisms.push_back(std::move(join));
  }
  return without_dead(std::move(result));
}

}  // namespace adjoint
