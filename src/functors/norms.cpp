#include "functors/norms.h"

#include <map>

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
  std::map<std::string, std::vector<Value>> by_role;
  for (const Value v : said.inputs) {
    if (said[v].role != Role::kParameter) continue;
    const auto held = step.find(said[v].source);
    if (!held || step[*held].role != Role::kParameter || !is_float(step[*held].type.dtype))
      continue;
    by_role[role_of(roles, v)].push_back(*held);
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
