// A result overwrites an operand that has no later reader, where the op allows it; updated state
// overwrites the old state, and so does a sum its accumulator. Every other object has bytes of its
// own, from the call that makes it to the last call that reads it or anything inside it.
#include "plan/storages.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "device/buffer.h"
#include "plan/lanes.h"

namespace adjoint {

namespace {

constexpr int kStillThere = INT32_MAX;  // a tenant's end, until it is known

class Planner {
 public:
  Planner(const Scheme& scheme, const PlanOptions& options, const Sharing& sharing,
          const std::vector<int>& order)
      : scheme_(scheme),
        options_(options),
        sharing_(sharing),
        order_(order),
        repeats_(scheme.parts > 1 || !scheme.loop.empty()),
        end_(static_cast<int>(order.size())) {}

  Plan run() {
    plan_.places = sharing_.places;
    find_sections();
    find_last_uses();
    for (const Value in : scheme_.inputs) add_input(in);
    if (options_.target == Target::kCuda && options_.landings) add_landings();
    for (int at = 0; at < end_; ++at) add_call(at);
    for (Storage& s : plan_.storages) {
      for (Tenant& t : s.tenants) {
        if (t.to == kStillThere) t.to = s.last;
      }
    }
    measure();
    return std::move(plan_);
  }

 private:
  void find_sections() {
    const auto before = [&](Section section) {
      const auto first = std::find_if(order_.begin(), order_.end(), [&](int i) {
        return scheme_.morphisms[i].section >= section;
      });
      return static_cast<int>(first - order_.begin());
    };
    plan_.body_begin = before(Section::kBody);
    plan_.body_end = before(Section::kEpilogue);
  }

  // Of what is repeated: the flat body of a pipeline's stage runs once.
  bool in_body(int at) const { return repeats_ && at >= plan_.body_begin && at < plan_.body_end; }
  Value root(Value v) const { return sharing_.root(v); }
  Value within(Value v) const { return sharing_.adjacent.within[v]; }
  Tier tier_of(Value v) const { return scheme_[v].attributes.tier; }

  // What was made before the body and is read in it is read in every iteration, so it lives to the
  // body's end.
  void find_last_uses() {
    last_use_.assign(scheme_.objects.size(), -1);
    std::vector<bool> made_in_body(scheme_.objects.size(), false);
    for (int at = 0; at < end_; ++at) {
      const Morphism& m = scheme_.morphisms[order_[at]];
      for (const Value v : m.inputs) {
        const Value r = root(v);
        const bool again = in_body(at) && !made_in_body[r];
        last_use_[r] = again ? plan_.body_end - 1 : at;
      }
      for (const Value v : m.outputs) {
        for (Value w = v; w >= 0; w = within(w)) made_in_body[w] = in_body(at);
        int& last = last_use_[root(v)];
        last = std::max(last, at);
      }
    }
    if (options_.target == Target::kCuda) keep_while_sent();
    keep_under_way();
    for (const Value v : scheme_.outputs) last_use_[root(v)] = end_;
    for (const Carry& c : scheme_.carries) last_use_[root(c.in)] = last_use_[root(c.out)] = end_;
    for (const Carry& c : scheme_.loop) {
      int& in = last_use_[root(c.in)];
      int& out = last_use_[root(c.out)];
      in = out = std::max({in, out, plan_.body_end - 1});
    }
  }

  // What a collective reads and writes is its own until it is done.
  void keep_under_way() {
    std::vector<bool> is_view;
    for (const int m : order_) {
      is_view.push_back(sharing_.view_of[scheme_.morphisms[m].outputs[0]] >= 0);
    }
    done_before_ = done_before(scheme_, order_, is_view);
    busy_until_.assign(scheme_.objects.size(), 0);
    for (int at = 0; at < end_; ++at) {
      if (done_before_[at] == at + 1) continue;
      const Morphism& m = scheme_.morphisms[order_[at]];
      const auto keep = [&](Value v) {
        last_use_[root(v)] = std::max(last_use_[root(v)], done_before_[at] - 1);
        busy_until_[root(v)] = std::max(busy_until_[root(v)], done_before_[at]);
      };
      for (const Value in : m.inputs) keep(in);
      for (const Value out : m.outputs) keep(out);
    }
  }

  // A copy to the host runs concurrently with later calls, after the copies before it. Its operand
  // stays alive until twice the largest copy has been sent after it, so that the next user of its
  // bytes seldom has to wait. Twice, because state moves in pairs: while one parameter's moments
  // leave, the next one's arrive.
  void keep_while_sent() {
    const auto section_end = [&](int at) {
      return at < plan_.body_begin ? plan_.body_begin : at < plan_.body_end ? plan_.body_end : end_;
    };
    std::vector<std::pair<int, Value>> sent;  // places and operands
    std::map<int, int64_t> largest;           // by the section's end
    const auto bytes = [&](Value v) { return scheme_[v].type.bytes().count; };
    for (int at = 0; at < end_; ++at) {
      const Morphism& m = scheme_.morphisms[order_[at]];
      if (lane_of(m) != Lane::kSend) continue;
      sent.emplace_back(at, m.inputs[0]);
      int64_t& most = largest[section_end(at)];
      most = std::max(most, bytes(m.inputs[0]));
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      const auto& [at, v] = sent[i];
      int until = section_end(at) - 1;
      int64_t left = 2 * largest[until + 1];
      for (size_t k = i + 1; k < sent.size() && sent[k].first < until; ++k) {
        left -= bytes(sent[k].second);
        if (left <= 0) until = sent[k].first;
      }
      last_use_[root(v)] = std::max(last_use_[root(v)], until);
    }
  }

  int new_storage(Bytes size, int first, int last, Tier tier) {
    plan_.storages.push_back({.size = size, .first = first, .last = last, .tier = tier});
    return static_cast<int>(plan_.storages.size() - 1);
  }

  void put(Value v, int storage) {
    plan_.places[v].storage = storage;
    plan_.storages[storage].objects.push_back(v);
  }

  // v owns its bytes from this place on.
  void own(Value v, int at) {
    Storage& s = plan_.storages[plan_.places[v].storage];
    s.tenants.push_back({.object = v,
                         .category = category_of(scheme_[v].role),
                         .from = at,
                         .to = kStillThere,
                         .offset = plan_.places[v].offset,
                         .size = scheme_[v].type.bytes()});
  }

  void take_place(Value v, Value of, int at) {
    plan_.places[v].offset = plan_.places[of].offset;
    put(v, plan_.places[of].storage);
    // One tenant of these bytes is still there, and it came lately: an accumulator has had one for
    // every part of the batch before it.
    std::vector<Tenant>& tenants = plan_.storages[plan_.places[v].storage].tenants;
    const auto before = std::find_if(tenants.rbegin(), tenants.rend(), [&](const Tenant& t) {
      return t.to == kStillThere && t.offset == plan_.places[v].offset;
    });
    if (before != tenants.rend()) before->to = at - 1;
    own(v, at);
  }

  void put_alone(Value v, int at) {
    put(v, new_storage(scheme_[v].type.bytes(), at, last_use_[v], tier_of(v)));
    own(v, at);
  }

  // State lies at the bottom, in the order of the scheme, for the whole step and beyond. Data is
  // written before the step begins.
  void add_input(Value v) {
    if (plan_.places[v].storage >= 0) return;  // it was placed with the first of its group
    const Object& object = scheme_[v];
    const bool state = is_state(object.role);
    std::vector<Value> group = {v};
    if (sharing_.joined[v] >= 0) group = sharing_.adjacent.joined[sharing_.joined[v]];
    Bytes size{0};
    for (const Value member : group) size += scheme_[member].type.bytes();
    const int storage = new_storage(size, 0, state ? end_ : std::max(last_use_[v], 0), tier_of(v));
    if (state) place_state(plan_.storages[storage], group[0]);
    for (const Value member : group) {
      put(member, storage);
      own(member, 0);
    }
  }

  // Landings lie with the state, because data may arrive while a guest plan runs above it.
  void add_landings() {
    for (const Value in : scheme_.inputs) {
      const Role role = scheme_[in].role;
      if ((role != Role::kInput && role != Role::kControl) || tier_of(in) != Tier::kDevice)
        continue;
      const Bytes size = scheme_[in].type.bytes();
      const int storage = new_storage(size, 0, end_, Tier::kDevice);
      Storage& s = plan_.storages[storage];
      put_on_top(s);
      s.tenants = {
          {.object = in, .category = category_of(role), .from = 0, .to = end_, .size = size}};
      plan_.landings[in] = storage;
    }
  }

  void place_state(Storage& s, Value first) {
    const auto fixed = options_.fixed.find(to_string(scheme_[first].source));
    if (fixed != options_.fixed.end()) {
      CHECK(fixed->second.tier == s.tier,
            "state that two plans share lies in one tier: " + to_string(scheme_[first].source));
      s.offset = fixed->second.offset;
      return;
    }
    put_on_top(s);
  }

  void put_on_top(Storage& s) {
    Bytes& top = state_top_[static_cast<size_t>(s.tier)];
    top = std::max(top, options_.floor[static_cast<size_t>(s.tier)]);
    s.offset = top;
    top += round_up(s.size, kAlignment);
  }

  void add_call(int at) {
    const Morphism& m = scheme_.morphisms[order_[at]];
    PlannedCall planned{.morphism = order_[at]};
    if (const Value of = sharing_.view_of[m.outputs[0]]; of >= 0) {
      put(m.outputs[0], plan_.places[of].storage);
      planned.is_view = true;
      plan_.calls.push_back(planned);
      return;
    }
    const CallFacts& facts = sharing_.facts[order_[at]];
    planned.is_view = sharing_.adjacent.is_whole[order_[at]];
    for (size_t o = 0; o < m.outputs.size(); ++o) place_output(m, o, at, facts);
    if (facts.workspace.count > 0) {
      const int last = done_before_[at] - 1;
      planned.workspace = new_storage(facts.workspace, at, last, Tier::kDevice);
      plan_.storages.back().tenants = {{.object = -1,
                                        .category = Category::kWorkspace,
                                        .from = at,
                                        .to = last,
                                        .size = facts.workspace}};
    }
    plan_.calls.push_back(planned);
  }

  void place_output(const Morphism& m, size_t o, int at, const CallFacts& facts) {
    const Value out = m.outputs[o];
    const Value grown = sharing_.grown_from[out];
    if (const Value in = grown >= 0 ? grown : sharing_.carried_to[out]; in >= 0) {
      CHECK(tier_of(in) == tier_of(out),
            "state comes out in the tier where it went in: " + to_string(scheme_[in].source));
      CHECK(may_write(m, o, in, facts),
            "the op that writes state may overwrite it: " + to_string(m.source));
      take_place(out, in, at);
      return;
    }
    if (plan_.places[out].storage >= 0) return;  // a concat whose operands were made in it
    if (within(out) >= 0) {
      const Value whole = root(out);
      if (plan_.places[whole].storage < 0) {
        const Value sliced = sliced_for(m, whole, at, facts);
        if (sliced >= 0) {
          plan_.storages[plan_.places[sliced].storage].last = last_use_[whole];
          take_place(whole, sliced, at);
        } else {
          put_alone(whole, at);
        }
      }
      put(out, plan_.places[whole].storage);
      return;
    }
    if (const Value in = dies_for(m, o, at, facts); in >= 0) {
      plan_.storages[plan_.places[in].storage].last = last_use_[out];
      take_place(out, in, at);
      return;
    }
    put_alone(out, at);
  }

  // The operand that result o overwrites, or -1.
  Value dies_for(const Morphism& m, size_t o, int at, const CallFacts& facts) const {
    const Type& type = scheme_[m.outputs[o]].type;
    for (const auto& [output, operand] : facts.overwrites) {
      if (output != static_cast<int>(o)) continue;
      const Value in = m.inputs[operand];
      const Place& place = plan_.places[in];
      const Storage& s = plan_.storages[place.storage];
      // What the next iteration reads as well must not be overwritten.
      const bool again =
          in_body(at) && (s.first < plan_.body_begin || sharing_.is_carried[root(in)]);
      const bool dies = s.last == at && s.first < at && !sharing_.is_input[root(in)] && !again &&
                        busy_until_[root(in)] <= at;
      const bool same = s.size == type.bytes() && place.offset.count == 0 &&
                        tier_of(in) == tier_of(m.outputs[o]) &&
                        place.strides == dense_strides(type) && scheme_[in].type == type;
      if (!dies || !same) continue;
      const auto taken = [&](Value other) { return plan_.places[other].storage == place.storage; };
      // Not if another operand uses the same bytes differently, or another result has overwritten
      // them.
      const bool read_elsewhere = [&] {
        for (size_t i = 0; i < m.inputs.size(); ++i) {
          if (m.inputs[i] == in ? !is_stated(facts, o, i) : taken(m.inputs[i])) return true;
        }
        return false;
      }();
      const bool shared =
          read_elsewhere ||
          std::any_of(m.outputs.begin(), m.outputs.begin() + static_cast<int64_t>(o), taken);
      if (!shared) return in;
    }
    return -1;
  }

  // Where a call reads slices of one object and makes the operands of one concat, each over its
  // slice, the concat as a whole overwrites the object; the gradient of joined projections does so.
  // Returns the object, or -1.
  Value sliced_for(const Morphism& m, Value whole, int at, const CallFacts& facts) const {
    const auto over = [&](int storage, Value in, int operand) {
      for (const auto& [output, of] : facts.overwrites) {
        const Value out = m.outputs[output];
        if (of != operand || within(out) < 0 || root(out) != whole) continue;
        const Place &from = plan_.places[in], &to = plan_.places[out];
        if (from.storage == storage && from.offset == to.offset && from.strides == to.strides &&
            scheme_[in].type == scheme_[out].type) {
          return true;
        }
      }
      return false;
    };
    for (const Value in : m.inputs) {
      const Value sliced = root(in);
      const int storage = plan_.places[sliced].storage;
      const Storage& s = plan_.storages[storage];
      if (scheme_[sliced].type != scheme_[whole].type || tier_of(sliced) != tier_of(whole))
        continue;
      if (plan_.places[sliced].offset.count != 0 || s.size != scheme_[whole].type.bytes()) continue;
      const bool again = in_body(at) && (s.first < plan_.body_begin || sharing_.is_carried[sliced]);
      if (s.last != at || s.first >= at || sharing_.is_input[sliced] || again) continue;
      if (busy_until_[sliced] > at) continue;
      bool all = true;  // every operand there is overwritten element by element
      for (size_t k = 0; k < m.inputs.size(); ++k) {
        if (plan_.places[m.inputs[k]].storage != storage) continue;
        all = all && over(storage, m.inputs[k], static_cast<int>(k));
      }
      const bool taken = std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value out) {
        return plan_.places[out].storage == storage;
      });
      if (all && !taken) return sliced;
    }
    return -1;
  }

  // Result o may overwrite `in` if every operand in those bytes is `in` itself and the op allows
  // it. All other readers of `in` have run, because the order puts them first.
  bool may_write(const Morphism& m, size_t o, Value in, const CallFacts& facts) const {
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (!overlap(m.inputs[i], in)) continue;
      if (m.inputs[i] != in || !is_stated(facts, o, i)) return false;
    }
    return true;
  }

  static bool is_stated(const CallFacts& facts, size_t o, size_t operand) {
    const std::pair<int, int> pair(static_cast<int>(o), static_cast<int>(operand));
    return std::count(facts.overwrites.begin(), facts.overwrites.end(), pair) > 0;
  }

  // Parameters that a concat joins lie in one storage, each in bytes of its own.
  bool overlap(Value a, Value b) const {
    const Place &x = plan_.places[a], &y = plan_.places[b];
    if (x.storage != y.storage) return false;
    const Type &of_a = scheme_[a].type, &of_b = scheme_[b].type;
    if (x.strides != dense_strides(of_a) || y.strides != dense_strides(of_b)) return true;
    return x.offset < y.offset + of_b.bytes() && y.offset < x.offset + of_a.bytes();
  }

  // Live bytes over the order; an arena must hold at least their maximum.
  void measure() {
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      Arena arena{.state_end = std::max(state_top_[t], options_.floor[t])};
      std::vector<int64_t> change(end_ + 2, 0);
      for (const Storage& s : plan_.storages) {
        if (s.tier != tier) continue;
        change[s.first] += s.size.count;
        change[std::min(s.last, end_) + 1] -= s.size.count;
      }
      int64_t live = 0;
      for (int at = 0; at <= end_; ++at) {
        live += change[at];
        if (live > arena.live_peak.count) arena.live_peak = {live}, arena.peak_at = at;
      }
      plan_.set_arena(tier, arena);
    }
  }

  const Scheme& scheme_;
  const PlanOptions& options_;
  const Sharing& sharing_;
  const std::vector<int>& order_;
  bool repeats_;
  const int end_;
  std::vector<int> last_use_;
  std::vector<int> done_before_;  // per place
  std::vector<int> busy_until_;   // per object: a collective uses it until before this place
  std::array<Bytes, kNumTiers> state_top_ = {};
  Plan plan_;
};

}  // namespace

Plan lay_in_storages(const Scheme& scheme, const PlanOptions& options, const Sharing& sharing,
                     const std::vector<int>& order) {
  return Planner(scheme, options, sharing, order).run();
}

}  // namespace adjoint
