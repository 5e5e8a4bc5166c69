// Order, then storages, then offsets. Storages are joined where the scheme allows it: a view lies
// in what it is a view of; a result takes the place of an operand that dies there, where the op
// says it may; state that comes out lies where it went in, and so does an accumulator; operands of
// a concat are made inside it. Each tier is packed by itself.
#include "plan/plan.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "device/buffer.h"
#include "ops/op_def.h"
#include "plan/adjacent.h"
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
    find_sections(end);
    find_carries();
    find_views();
    find_last_uses(end);
    for (const Value in : scheme_.inputs) add_input(in, end);
    for (int at = 0; at < end; ++at) add_call(at, facts);
    measure(end);
    return std::move(plan_);
  }

 private:
  void find_sections(int end) {
    const auto before = [&](Section section) {
      const auto first = std::find_if(order_.begin(), order_.end(), [&](int i) {
        return scheme_.morphisms[i].section >= section;
      });
      return static_cast<int>(first - order_.begin());
    };
    plan_.body_begin = before(Section::kBody);
    plan_.body_end = before(Section::kEpilogue);
    CHECK(plan_.body_end <= end, "the epilogue is inside the order");
  }

  bool in_body(int at) const { return at >= plan_.body_begin && at < plan_.body_end; }

  void find_carries() {
    carried_to_.assign(scheme_.objects.size(), -1);
    is_carried_.assign(scheme_.objects.size(), false);
    for (const std::vector<Carry>* carries : {&scheme_.carries, &scheme_.loop}) {
      for (const Carry& c : *carries) {
        CHECK(carried_to_[c.out] < 0 || carried_to_[c.out] == c.in,
              "a result is carried to one place: " + to_string(scheme_[c.out].source));
        carried_to_[c.out] = c.in;
        is_carried_[c.in] = is_carried_[c.out] = true;
      }
    }
    begins_.assign(scheme_.objects.size(), false);
    for (const Carry& c : scheme_.loop) begins_[c.in] = true;
  }

  // A view shares its operand's storage, so the operand lives as long as its views are read. What
  // strides cannot say is a copy, an object of its own.
  void find_views() {
    view_of_.assign(scheme_.objects.size(), -1);
    is_input_.assign(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) is_input_[in] = true;
    adjacent_ = find_adjacent(scheme_, options_);
    for (size_t v = 0; v < scheme_.objects.size(); ++v) {
      plan_.places[v].strides = adjacent_.strides[v];
    }
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {  // holders before what lies in them
      for (const Value v : scheme_.morphisms[i].outputs) {
        if (adjacent_.within[v] >= 0) lie_within(v, adjacent_.within[v], adjacent_.start[v]);
      }
    }
    join_parameters();
    const std::vector<int> made_by = producers(scheme_);
    const std::vector<std::vector<int>> read_by = readers(scheme_);
    std::vector<bool> read_densely(scheme_.objects.size(), false);
    for (const Morphism& m : scheme_.morphisms) {
      if (!op_named(m.op).wants_dense) continue;
      for (const Value in : m.inputs) read_densely[in] = true;
    }
    for (const int i : order_) {
      const Morphism& m = scheme_.morphisms[i];
      const OpDef& def = op_named(m.op);
      if (!def.view) {
        write_over_slice(i, made_by, read_by, read_densely);
        continue;
      }
      const Value out = m.outputs[0], in = m.inputs[0];
      // What is carried has bytes of its own, a view cannot reach into another tier, and one of an
      // accumulator's beginning must not grow with it.
      if (is_carried_[out] || tier_of(out) != tier_of(in)) continue;
      if (m.section == Section::kPrologue && begins_[root(in)]) continue;
      int64_t offset = 0;
      auto strides = def.view(call_of(scheme_, m), plan_.places[in].strides, offset);
      if (!strides) continue;
      const Type& type = scheme_[out].type;
      if (lies_densely(type, *strides)) strides = dense_strides(type);
      if (read_densely[out] && *strides != dense_strides(scheme_[out].type)) continue;
      view_of_[out] = in;
      plan_.places[out].strides = *strides;
      plan_.places[out].offset =
          plan_.places[in].offset + offset * size_of(scheme_[out].type.dtype);
    }
  }

  void lie_within(Value v, Value holder, int64_t start) {
    plan_.places[v].offset = plan_.places[holder].offset + start * size_of(scheme_[v].type.dtype);
  }

  // A concat of parameters that lie one behind the other is a view of the first and what follows.
  void join_parameters() {
    joined_.assign(scheme_.objects.size(), -1);
    for (size_t g = 0; g < adjacent_.joined.size(); ++g) {
      const std::vector<Value>& group = adjacent_.joined[g];
      Bytes next{0};
      for (const Value v : group) {
        joined_[v] = static_cast<int>(g);
        plan_.places[v].offset = next;
        next += scheme_[v].type.bytes();
      }
      view_of_[scheme_.morphisms[adjacent_.joined_by[g]].outputs[0]] = group[0];
    }
  }

  // What an op makes of a slice may take the slice's place though other slices live on.
  void write_over_slice(int i, const std::vector<int>& made_by,
                        const std::vector<std::vector<int>>& read_by,
                        const std::vector<bool>& read_densely) {
    const Morphism& m = scheme_.morphisms[i];
    const Value out = m.outputs[0];
    if (adjacent_.within[out] >= 0 || read_densely[out] || is_carried_[out]) return;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value in = m.inputs[k];
      if (view_of_[in] < 0 || scheme_[in].type != scheme_[out].type) continue;
      if (tier_of(in) != tier_of(out)) continue;
      if (!writes_over_slice(scheme_, made_by, read_by, i, in)) continue;
      const auto may = overwrites(call_of(scheme_, m));
      if (!std::count(may.begin(), may.end(), std::pair{0, static_cast<int>(k)})) continue;
      adjacent_.within[out] = in;
      plan_.places[out].strides = plan_.places[in].strides;
      lie_within(out, in, 0);
      return;
    }
  }

  Value root(Value v) const {
    while (true) {
      const Value next = view_of_[v] >= 0 ? view_of_[v] : adjacent_.within[v];
      if (next < 0) return v;
      v = next;
    }
  }

  Tier tier_of(Value v) const { return scheme_[v].attributes.tier; }

  // Whoever reads in the body what was there before it reads it again in the next iteration.
  void find_last_uses(int end) {
    last_use_.assign(scheme_.objects.size(), -1);
    std::vector<bool> made_in_body(scheme_.objects.size(), false);
    for (int at = 0; at < end; ++at) {
      const Morphism& m = scheme_.morphisms[order_[at]];
      for (const Value v : m.inputs) {
        const bool again = in_body(at) && !made_in_body[root(v)];
        last_use_[root(v)] = again ? plan_.body_end - 1 : at;
      }
      for (const Value v : m.outputs) {
        for (Value w = v; w >= 0; w = adjacent_.within[w]) made_in_body[w] = in_body(at);
        last_use_[root(v)] = std::max(last_use_[root(v)], at);
      }
    }
    for (const Value v : scheme_.outputs) last_use_[root(v)] = end;
    for (const Carry& c : scheme_.carries) last_use_[root(c.in)] = last_use_[root(c.out)] = end;
    for (const Carry& c : scheme_.loop) {
      int& in = last_use_[root(c.in)];
      int& out = last_use_[root(c.out)];
      in = out = std::max({in, out, plan_.body_end - 1});
    }
  }

  int new_storage(Bytes size, int first, int last, Category category, Tier tier) {
    plan_.storages.push_back(
        {.size = size, .first = first, .last = last, .category = category, .tier = tier});
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
    Bytes size = object.type.bytes();
    if (joined_[v] >= 0) {
      const std::vector<Value>& group = adjacent_.joined[joined_[v]];
      if (plan_.places[v].storage >= 0) return;  // placed with the first of its group
      size = {0};
      for (const Value member : group) size += scheme_[member].type.bytes();
    }
    const int storage = new_storage(size, 0, last, category_of(object), tier_of(v));
    if (state) {
      Storage& s = plan_.storages[storage];
      const Value first = joined_[v] >= 0 ? adjacent_.joined[joined_[v]][0] : v;
      const auto fixed = options_.fixed.find(to_string(scheme_[first].source));
      if (fixed != options_.fixed.end()) {
        CHECK(fixed->second.tier == s.tier,
              "state that two plans share lies in one tier: " + to_string(object.source));
        s.offset = fixed->second.offset;
      } else {
        Bytes& top = state_top_[static_cast<size_t>(s.tier)];
        top = std::max(top, options_.floor[static_cast<size_t>(s.tier)]);
        s.offset = top;
        top += round_up(s.size, kAlignment);
      }
    }
    if (joined_[v] < 0) {
      put(v, storage);
    } else {
      for (const Value member : adjacent_.joined[joined_[v]]) put(member, storage);
    }
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
      k.out_strides.push_back(plan_.places[v].strides);
    }
    return k;
  }

  const CallFacts& facts_of(const Morphism& m, std::map<std::string, CallFacts>& facts) const {
    std::string key = m.op;
    for (const auto& [name, attr] : m.attrs) {
      if (name != "key" && name != "from") key += "|" + name + "=" + to_string(attr);
    }
    for (const Value v : m.inputs) {
      key += "|" + to_string(scheme_[v].type);
      for (const int64_t stride : plan_.places[v].strides) key += "," + std::to_string(stride);
    }
    for (const Value v : m.outputs) {
      key += "|";
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
    planned.is_view = adjacent_.is_whole[order_[at]];
    for (size_t o = 0; o < m.outputs.size(); ++o) place_output(m, o, at, f);
    if (f.workspace.count > 0) {
      planned.workspace = new_storage(f.workspace, at, at, Category::kWorkspace, Tier::kDevice);
    }
    plan_.calls.push_back(planned);
  }

  void place_output(const Morphism& m, size_t o, int at, const CallFacts& f) {
    const Value out = m.outputs[o];
    const Type& type = scheme_[out].type;
    if (carried_to_[out] >= 0) {
      const Value in = carried_to_[out];
      CHECK(tier_of(in) == tier_of(out),
            "state comes out in the tier where it went in: " + to_string(scheme_[in].source));
      CHECK(may_write(m, o, in, f),
            "the op that writes state may overwrite it: " + to_string(m.source));
      plan_.places[out].offset = plan_.places[in].offset;
      put(out, plan_.places[in].storage);
      return;
    }
    if (plan_.places[out].storage >= 0) return;  // a concat in which operands were laid
    if (adjacent_.within[out] >= 0) {
      const Value whole = root(out);
      if (plan_.places[whole].storage < 0) {
        put(whole, new_storage(scheme_[whole].type.bytes(), at, last_use_[whole],
                               category_of(scheme_[whole]), tier_of(whole)));
      }
      put(out, plan_.places[whole].storage);
      return;
    }
    for (const auto& [output, operand] : f.overwrites) {
      if (output != static_cast<int>(o)) continue;
      const Value in = m.inputs[operand];
      const Place& place = plan_.places[in];
      Storage& s = plan_.storages[place.storage];
      // What the next iteration reads too does not die in this one.
      const bool again = in_body(at) && (s.first < plan_.body_begin || is_carried_[root(in)]);
      const bool dies = s.last == at && s.first < at && !is_input_[root(in)] && !again;
      const bool same = s.size == type.bytes() && place.offset.count == 0 &&
                        tier_of(in) == tier_of(out) && place.strides == dense_strides(type) &&
                        scheme_[in].type == type;
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
    const int storage =
        new_storage(type.bytes(), at, last_use_[out], category_of(scheme_[out]), tier_of(out));
    put(out, storage);
  }

  // Where `in` lies, result o may be written if every operand that lies there is `in` itself and
  // may be overwritten. All other readers of `in` have run: the order sees to that.
  bool may_write(const Morphism& m, size_t o, Value in, const CallFacts& f) const {
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (plan_.places[m.inputs[i]].storage != plan_.places[in].storage) continue;
      const std::pair<int, int> pair(static_cast<int>(o), static_cast<int>(i));
      const bool stated = std::count(f.overwrites.begin(), f.overwrites.end(), pair) > 0;
      if (m.inputs[i] != in || !stated) return false;
    }
    return true;
  }

  // Live bytes over the order; an arena must hold at least their maximum.
  void measure(int end) {
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      Arena arena{.state_end = std::max(state_top_[t], options_.floor[t])};
      std::vector<int64_t> change(end + 2, 0);
      for (const Storage& s : plan_.storages) {
        if (s.tier != tier) continue;
        change[s.first] += s.size.count;
        change[std::min(s.last, end) + 1] -= s.size.count;
      }
      int64_t live = 0;
      for (int at = 0; at <= end; ++at) {
        live += change[at];
        if (live > arena.live_peak.count) arena.live_peak = {live}, arena.peak_at = at;
      }
      plan_.set_arena(tier, arena);
    }
  }

  const Scheme& scheme_;
  const PlanOptions& options_;
  std::vector<int> order_;
  std::vector<Value> view_of_, carried_to_;
  std::vector<int> last_use_;
  std::vector<bool> is_input_, is_carried_, begins_;
  std::array<Bytes, kNumTiers> state_top_ = {};
  Adjacent adjacent_;
  std::vector<int> joined_;  // per object: its group of parameters, or -1
  Plan plan_;
};

}  // namespace

Arena Plan::arena_of(Tier tier) const {
  if (tier == Tier::kHost) return host;
  return {.size = arena, .live_peak = live_peak, .peak_at = peak_at, .state_end = state_end};
}

void Plan::set_arena(Tier tier, const Arena& a) {
  if (tier == Tier::kHost) {
    host = a;
    return;
  }
  arena = a.size;
  live_peak = a.live_peak;
  peak_at = a.peak_at;
  state_end = a.state_end;
}

void Plan::make_room_for(const Plan& guest) {
  arena = std::max(arena, guest.arena);
  host.size = std::max(host.size, guest.host.size);
}

std::vector<Bytes> Plan::at_peak(Tier tier) const {
  const int when = arena_of(tier).peak_at;
  std::vector<Bytes> bytes(kNumCategories);
  for (const Storage& s : storages) {
    if (s.tier != tier || s.first > when || s.last < when) continue;
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
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    Arena arena = plan.arena_of(tier);
    pack(plan.storages, arena.state_end, arena.live_peak, tier);
    for (const Storage& s : plan.storages) {
      if (s.tier == tier) arena.size = std::max(arena.size, s.offset + s.size);
    }
    plan.set_arena(tier, arena);
  }
  verify_plan(scheme, plan);
  return plan;
}

PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads) {
  PlanOptions options{
      .threads = threads, .fixed = {}, .floor = {plan.state_end, plan.host.state_end}};
  for (const Value in : scheme.inputs) {
    if (!is_state(scheme[in])) continue;
    options.fixed[to_string(scheme[in].source)] = {plan.tier_of(in), plan.offset_of(in)};
  }
  return options;
}

}  // namespace adjoint
