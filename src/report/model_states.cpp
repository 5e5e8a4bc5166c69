#include "report/model_states.h"

#include <algorithm>
#include <set>

namespace adjoint {

namespace {

// Live bytes over the places of a plan's order.
struct LiveBytes {
  std::vector<int64_t> change;

  explicit LiveBytes(const Plan& plan) : change(plan.calls.size() + 1) {}
  void add(const Tenant& tenant) {
    const auto end = static_cast<int>(change.size()) - 1;
    change[std::clamp(tenant.from, 0, end)] += tenant.size.count;
    change[std::clamp(tenant.to + 1, 0, end)] -= tenant.size.count;
  }
  Bytes most() const {
    int64_t live = 0, most = 0;
    for (const int64_t c : change) most = std::max(most, live += c);
    return {most};
  }
};

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
  LiveBytes copies(plan), gradients(plan), both(plan);
  for (const Storage& storage : plan.storages) {
    for (const Tenant& tenant : storage.tenants) {
      if (tenant.object < 0 || held.count(tenant.object)) continue;
      const bool is_gradient =
          tenant.category == Category::kGradients && paths.count(step[tenant.object].source.path);
      if (!is_gradient && tenant.category != Category::kParameters) continue;
      (is_gradient ? gradients : copies).add(tenant);
      both.add(tenant);
    }
  }
  states.copies = copies.most(), states.gradients = gradients.most();
  states.transient = both.most();
  return states;
}

nlohmann::json model_states_json(const ModelStates& states) {
  return {{"parameters", states.parameters.count},  {"optimizer_state", states.optimizer.count},
          {"most_copies", states.copies.count},     {"most_gradients", states.gradients.count},
          {"most_of_both", states.transient.count}, {"all", states.all().count}};
}

}  // namespace adjoint
