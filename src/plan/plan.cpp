// Order, then storages, then offsets. Storages are joined where the scheme allows it: a view lies
// in what it is a view of; a result takes the place of an operand that dies there, where the op
// says it may; state that comes out lies where it went in.
#include "plan/plan.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "device/buffer.h"
#include "ops/op_def.h"
#include "plan/order.h"
#include "plan/pack.h"

namespace adjoint {

std::string_view name(Category category) {
  constexpr std::string_view names[] = {"parameters",  "gradients", "optimizer state",
                                        "activations", "workspace", "other"};
  return names[static_cast<size_t>(category)];
}

namespace {

Category category_of(const Object& object) {
  switch (object.role) {
    case Role::kParameter:
      return Category::kParameters;
    case Role::kGradient:
      return Category::kGradients;
    case Role::kState:
      return Category::kOptimizer;
    case Role::kActivation:
      return Category::kActivations;
    default:
      return Category::kOther;
  }
}

bool is_state(const Object& object) {
  return object.role == Role::kParameter || object.role == Role::kState ||
         object.role == Role::kControl;
}

// Everything about one call that repeats with every block, found once.
struct CallFacts {
  std::vector<std::pair<int, int>> overwrites;
  Bytes workspace;
};

class Planner {
 public:
  Planner(const Scheme& scheme, const PlanOptions& options, std::vector<int> order)
      : scheme_(scheme), options_(options), order_(std::move(order)) {}

  Plan run(std::map<std::string, CallFacts>& facts) {
    const int end = static_cast<int>(order_.size());
    plan_.places.resize(scheme_.objects.size());
    find_views();
    find_last_uses(end);
    for (const Value in : scheme_.inputs) add_input(in, end);
    for (int at = 0; at < end; ++at) add_call(at, facts);
    measure(end);
    return std::move(plan_);
  }

 private:
  // A view shares its operand's storage, so the operand lives as long as its views are read. What
  // strides cannot say is a copy, an object of its own.
  void find_views() {
    view_of_.assign(scheme_.objects.size(), -1);
    is_input_.assign(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) is_input_[in] = true;
    for (size_t v = 0; v < scheme_.objects.size(); ++v) {
      plan_.places[v].strides = dense_strides(scheme_.objects[v].type);
    }
    std::vector<bool> read_densely(scheme_.objects.size(), false);
    for (const Morphism& m : scheme_.morphisms) {
      if (!op_named(m.op).wants_dense) continue;
      for (const Value in : m.inputs) read_densely[in] = true;
    }
    for (const int i : order_) {
      const Morphism& m = scheme_.morphisms[i];
      const OpDef& def = op_named(m.op);
      if (!def.view) continue;
      const Value out = m.outputs[0], in = m.inputs[0];
      int64_t offset = 0;
      const auto strides = def.view(call_of(scheme_, m), plan_.places[in].strides, offset);
      if (!strides) continue;
      if (read_densely[out] && *strides != dense_strides(scheme_[out].type)) continue;
      view_of_[out] = in;
      plan_.places[out].strides = *strides;
      plan_.places[out].offset =
          plan_.places[in].offset + offset * size_of(scheme_[out].type.dtype);
    }
  }

  Value root(Value v) const {
    while (view_of_[v] >= 0) v = view_of_[v];
    return v;
  }

  void find_last_uses(int end) {
    last_use_.assign(scheme_.objects.size(), -1);
    for (int at = 0; at < end; ++at) {
      const Morphism& m = scheme_.morphisms[order_[at]];
      for (const Value v : m.inputs) last_use_[root(v)] = at;
      for (const Value v : m.outputs) last_use_[root(v)] = std::max(last_use_[root(v)], at);
    }
    for (const Value v : scheme_.outputs) last_use_[root(v)] = end;
    carried_to_.assign(scheme_.objects.size(), -1);
    for (const Carry& c : scheme_.carries) {
      carried_to_[c.out] = c.in;
      last_use_[root(c.in)] = last_use_[root(c.out)] = end;
    }
  }

  int new_storage(Bytes size, int first, int last, Category category) {
    plan_.storages.push_back({.size = size, .first = first, .last = last, .category = category});
    return static_cast<int>(plan_.storages.size() - 1);
  }

  void put(Value v, int storage) {
    plan_.places[v].storage = storage;
    plan_.storages[storage].objects.push_back(v);
  }

  // State lies at the bottom, in the order of the scheme, for the whole step and beyond. Data is
  // written before the step begins.
  void add_input(Value v, int end) {
    const Object& object = scheme_[v];
    const bool state = is_state(object);
    const int last = state ? end : std::max(last_use_[v], 0);
    const int storage = new_storage(object.type.bytes(), 0, last, category_of(object));
    if (state) {
      Storage& s = plan_.storages[storage];
      const auto fixed = options_.fixed.find(to_string(object.source));
      if (fixed != options_.fixed.end()) {
        s.offset = fixed->second;
      } else {
        state_top_ = std::max(state_top_, options_.floor);
        s.offset = state_top_;
        state_top_ += round_up(s.size, kAlignment);
      }
    }
    put(v, storage);
  }

  KernelCall kernel_call(const OpCall& call, const Morphism& m) const {
    KernelCall k{.call = call,
                 .outputs = {},
                 .in_strides = {},
                 .out_strides = {},
                 .threads = options_.threads};
    for (const Value v : m.inputs) k.in_strides.push_back(plan_.places[v].strides);
    for (const Value v : m.outputs) {
      k.outputs.push_back(scheme_[v].type);
      k.out_strides.push_back(dense_strides(scheme_[v].type));
    }
    return k;
  }

  const CallFacts& facts_of(const Morphism& m, std::map<std::string, CallFacts>& facts) const {
    std::string key = m.op;
    for (const auto& [name, attr] : m.attrs) {
      if (name != "key") key += "|" + name + "=" + to_string(attr);
    }
    for (const Value v : m.inputs) {
      key += "|" + to_string(scheme_[v].type);
      for (const int64_t stride : plan_.places[v].strides) key += "," + std::to_string(stride);
    }
    const auto found = facts.find(key);
    if (found != facts.end()) return found->second;
    const OpCall call = call_of(scheme_, m);
    const KernelCall k = kernel_call(call, m);
    return facts.emplace(key, CallFacts{overwrites(call), workspace_bytes(k)}).first->second;
  }

  void add_call(int at, std::map<std::string, CallFacts>& facts) {
    const Morphism& m = scheme_.morphisms[order_[at]];
    PlannedCall planned{.morphism = order_[at]};
    if (const Value of = view_of_[m.outputs[0]]; of >= 0) {
      put(m.outputs[0], plan_.places[of].storage);
      planned.is_view = true;
      plan_.calls.push_back(planned);
      return;
    }
    const CallFacts& f = facts_of(m, facts);
    for (size_t o = 0; o < m.outputs.size(); ++o) place_output(m, o, at, f);
    if (f.workspace.count > 0) {
      planned.workspace = new_storage(f.workspace, at, at, Category::kWorkspace);
    }
    plan_.calls.push_back(planned);
  }

  void place_output(const Morphism& m, size_t o, int at, const CallFacts& f) {
    const Value out = m.outputs[o];
    const Type& type = scheme_[out].type;
    if (carried_to_[out] >= 0) {
      const Value in = carried_to_[out];
      const bool allowed = std::any_of(f.overwrites.begin(), f.overwrites.end(), [&](auto& pair) {
        return pair.first == static_cast<int>(o) && m.inputs[pair.second] == in;
      });
      CHECK(allowed, "the op that writes state may overwrite it: " + to_string(m.source));
      put(out, plan_.places[in].storage);
      return;
    }
    for (const auto& [output, operand] : f.overwrites) {
      if (output != static_cast<int>(o)) continue;
      const Value in = m.inputs[operand];
      const Place& place = plan_.places[in];
      Storage& s = plan_.storages[place.storage];
      const bool dies = s.last == at && s.first < at && !is_input_[in];
      const bool same = s.size == type.bytes() && place.offset.count == 0 &&
                        place.strides == dense_strides(type) && scheme_[in].type == type;
      const auto taken = [&](Value other) { return plan_.places[other].storage == place.storage; };
      // Not when another operand lies in the same bytes differently, or another result took them.
      const bool shared =
          std::any_of(m.inputs.begin(), m.inputs.end(),
                      [&](Value other) { return other != in && taken(other); }) ||
          std::any_of(m.outputs.begin(), m.outputs.begin() + static_cast<int64_t>(o), taken);
      if (!dies || !same || shared) continue;
      s.last = last_use_[out];
      put(out, plan_.places[in].storage);
      return;
    }
    const int storage = new_storage(type.bytes(), at, last_use_[out], category_of(scheme_[out]));
    put(out, storage);
  }

  // Live bytes over the order; the arena must hold at least their maximum.
  void measure(int end) {
    std::vector<int64_t> change(end + 2, 0);
    for (const Storage& s : plan_.storages) {
      change[s.first] += s.size.count;
      change[std::min(s.last, end) + 1] -= s.size.count;
    }
    int64_t live = 0;
    for (int at = 0; at <= end; ++at) {
      live += change[at];
      if (live > plan_.live_peak.count) plan_.live_peak = {live}, plan_.peak_at = at;
    }
    plan_.state_end = std::max(state_top_, options_.floor);
  }

  const Scheme& scheme_;
  const PlanOptions& options_;
  std::vector<int> order_;
  std::vector<Value> view_of_, carried_to_;
  std::vector<int> last_use_;
  std::vector<bool> is_input_;
  Bytes state_top_{0};
  Plan plan_;
};

}  // namespace

std::vector<Bytes> Plan::at_peak() const {
  std::vector<Bytes> bytes(kNumCategories);
  for (const Storage& s : storages) {
    if (s.first > peak_at || s.last < peak_at) continue;
    bytes[static_cast<size_t>(s.category)] += s.size;
  }
  return bytes;
}

Plan make_plan(const Scheme& scheme, const PlanOptions& options) {
  std::map<std::string, CallFacts> facts;
  Plan plan = Planner(scheme, options, freeing_order(scheme)).run(facts);
  Plan written = Planner(scheme, options, written_order(scheme)).run(facts);
  if (written.live_peak < plan.live_peak) plan = std::move(written);
  plan.threads = options.threads;
  pack(plan.storages, plan.state_end, plan.live_peak);
  for (const Storage& s : plan.storages) plan.arena = std::max(plan.arena, s.offset + s.size);
  verify_plan(scheme, plan);
  return plan;
}

PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads) {
  PlanOptions options{.threads = threads, .fixed = {}, .floor = plan.state_end};
  for (const Value in : scheme.inputs) {
    if (is_state(scheme[in])) options.fixed[to_string(scheme[in].source)] = plan.offset_of(in);
  }
  return options;
}

void verify_plan(const Scheme& scheme, const Plan& plan) {
  // Sweep over time with the live storages sorted by offset: neighbours must not overlap.
  std::map<int64_t, int> live;  // by offset
  std::vector<std::vector<int>> begins(plan.calls.size() + 1), ends(plan.calls.size() + 2);
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& s = plan.storages[i];
    CHECK(s.offset.count >= 0 && s.offset + s.size <= plan.arena, "a storage is in the arena");
    begins[s.first].push_back(static_cast<int>(i));
    ends[s.last + 1].push_back(static_cast<int>(i));
  }
  for (size_t at = 0; at < begins.size(); ++at) {
    for (const int i : ends[at]) live.erase(plan.storages[i].offset.count);
    for (const int i : begins[at]) {
      const Storage& s = plan.storages[i];
      const auto next = live.lower_bound(s.offset.count);
      CHECK(next == live.end() || s.offset.count + s.size.count <= next->first,
            "two live storages overlap");
      if (next != live.begin()) {
        const Storage& below = plan.storages[std::prev(next)->second];
        CHECK(below.offset + below.size <= s.offset, "two live storages overlap");
      }
      live[s.offset.count] = i;
    }
  }
  for (size_t v = 0; v < plan.places.size(); ++v) {
    const Place& place = plan.places[v];
    CHECK(place.storage >= 0, "every object has a place");
    const Type& type = scheme.objects[v].type;
    int64_t furthest = 0;
    for (int a = 0; a < type.rank(); ++a) furthest += (type.dim(a) - 1) * place.strides[a];
    const Bytes need = place.offset + (furthest + 1) * size_of(type.dtype);
    CHECK(need <= plan.storages[place.storage].size, "an object is inside its storage");
  }
}

}  // namespace adjoint
