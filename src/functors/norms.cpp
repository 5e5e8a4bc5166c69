#include "functors/norms.h"

#include <map>
#include <set>

#include "analysis/roles.h"
#include "base/error.h"
#include "functors/phases.h"
#include "ops/builder.h"

namespace adjoint {

namespace {
constexpr std::string_view kNorm = "norm.";
}

Source norm_source(const std::string& role) { return {"gradient", std::string(kNorm) + role}; }

std::string role_of_norm(const Source& source) {
  CHECK(source.facet.starts_with(kNorm), "asked of a norm");
  return source.facet.substr(kNorm.size());
}

std::map<std::string, std::vector<Value>> weights_by_role(const Scheme& said, const Scheme& step) {
  const Roles roles(said);
  const auto is_weight = [](const Object& object) {
    return object.role == Role::kParameter && is_float(object.type.dtype);
  };
  std::set<std::string> of_others;  // and of this stage
  for (const Object& object : step.of_all_stages) {
    if (is_weight(object)) of_others.insert(to_string(object.source));
  }
  std::map<std::string, std::vector<Value>> by_role;
  for (const Value v : said.inputs) {
    if (said[v].role != Role::kParameter) continue;
    const auto held = step.find(said[v].source);
    const bool here = held && is_weight(step[*held]);
    if (!here && !of_others.count(to_string(said[v].source))) continue;
    std::vector<Value>& weights = by_role[role_of(roles, v)];
    if (here) weights.push_back(*held);
  }
  return by_role;
}

Scheme weight_squares(const Scheme& said, const Scheme& step) {
  Scheme result;
  result.name = step.name;
  Builder builder(result);
  std::map<std::string, std::vector<Value>> by_role;
  for (const auto& [role, weights] : weights_by_role(said, step)) {
    for (const Value held : weights) {
      const Value weight = result.add_input(step[held]);
      builder.at({step[held].source.path, "weight.squares"}, Phase::kForward, Role::kMetric);
      by_role[role].push_back(builder.emit("square_sum", {weight}));
    }
  }
  for (const auto& [role, squares] : by_role) {
    builder.at(norm_source(role), Phase::kForward, Role::kMetric);
    result.outputs.push_back(builder.emit("sum_all", squares));
  }
  return realize_tier(std::move(result));
}

}  // namespace adjoint
