#include "report/model_states.h"

#include <algorithm>
#include <array>
#include <set>

#include "scheme/shards.h"

namespace adjoint {

namespace {

constexpr int kTransient = 3;  // copies, whole gradients, pieces of gradients
using TransientBytes = std::array<int64_t, kTransient>;

}  // namespace

ModelStates model_states(const Scheme& step, const Plan& plan) {
  std::set<std::string> paths;  // of parameters
  std::set<Value> held;
  ModelStates states;
  for (const Value in : step.inputs) {
    const Object& object = step[in];
    if (object.role == Role::kParameter) {
      paths.insert(object.source.path);
      states.parameters += object.type.bytes();
    } else if (object.role == Role::kState) {
      states.optimizer += object.type.bytes();
    } else {
      continue;
    }
    held.insert(in);
  }
  for (const Carry& c : step.carries) held.insert(c.out);
  // How live bytes change from place to place of the plan's order.
  const auto end = static_cast<int>(plan.calls.size());
  std::vector<TransientBytes> change(end + 1, TransientBytes{});
  for (const Storage& storage : plan.storages) {
    for (const Tenant& tenant : storage.tenants) {
      if (tenant.object < 0 || held.count(tenant.object)) continue;
      const Object& object = step[tenant.object];
      const bool is_gradient =
          tenant.category == Category::kGradients && paths.count(object.source.path);
      if (!is_gradient && tenant.category != Category::kParameters) continue;
      const int kind = !is_gradient ? 0 : is_sharded(object) ? 2 : 1;
      change[std::clamp(tenant.from, 0, end)][kind] += tenant.size.count;
      change[std::clamp(tenant.to + 1, 0, end)][kind] -= tenant.size.count;
    }
  }
  TransientBytes live = {}, most = {};
  for (const TransientBytes& c : change) {
    for (int kind = 0; kind < kTransient; ++kind) live[kind] += c[kind];
    const auto sum = [](const TransientBytes& b) { return b[0] + b[1] + b[2]; };
    if (sum(live) > sum(most)) most = live;
  }
  states.copies = {most[0]}, states.gradients = {most[1]}, states.pieces = {most[2]};
  return states;
}

nlohmann::json model_states_json(const ModelStates& states) {
  return {{"parameters", states.parameters.count},  {"optimizer_state", states.optimizer.count},
          {"copies", states.copies.count},          {"gradients", states.gradients.count},
          {"gradient_pieces", states.pieces.count}, {"all", states.all().count}};
}

}  // namespace adjoint
