#include "plan/lanes.h"

#include <algorithm>
#include <map>

#include "analysis/accumulators.h"
#include "ops/op_def.h"

namespace adjoint {

Lane lane_of(const Morphism& m) {
  const OpDef& op = op_named(m.op);
  if ((op.collective || op.to_one_rank) && std::get<int64_t>(m.attrs.at("ranks")) > 1)
    return Lane::kRanks;
  if (!op.moves) return Lane::kWork;
  return std::get<std::string>(m.attrs.at("tier")) == "host" ? Lane::kSend : Lane::kFetch;
}

namespace {

struct Access {
  Tier tier;
  int64_t begin, end;  // bytes of the tier's arena
  bool writes;
};

bool collide(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.tier == b.tier && a.begin < b.end && b.begin < a.end;
}

// The bytes that a call reads and writes. An object that is not dense counts with its whole
// storage. Padding that a product clears in its operands counts as read: no other call looks at it,
// so a copy may run before or after.
std::vector<Access> accesses(const Scheme& scheme, const Plan& plan, const PlannedCall& call) {
  std::vector<Access> all;
  const auto whole = [&](int storage, bool writes) {
    const Storage& s = plan.storages[storage];
    all.push_back({s.tier, s.offset.count, (s.offset + s.size).count, writes});
  };
  const auto add = [&](Value v, bool writes) {
    const Type& type = scheme[v].type;
    if (plan.places[v].strides != dense_strides(type)) return whole(plan.places[v].storage, writes);
    const Bytes begin = plan.offset_of(v);
    all.push_back({plan.tier_of(v), begin.count, (begin + type.bytes()).count, writes});
  };
  const Morphism& m = scheme.morphisms[call.morphism];
  for (const Value v : m.inputs) add(v, false);
  for (const Value v : m.outputs) add(v, true);
  if (call.workspace >= 0) whole(call.workspace, true);
  return all;
}

// Per lane, the latest place that is known to be done.
using Known = std::array<int, kNumLanes>;

void learn(Known& known, const Known& more) {
  for (int l = 0; l < kNumLanes; ++l) known[l] = std::max(known[l], more[l]);
}

}  // namespace

std::vector<LanedCall> make_lanes(const Scheme& scheme, const Plan& plan) {
  std::vector<LanedCall> lanes(plan.calls.size());
  bool apart = false;
  for (size_t at = 0; at < lanes.size(); ++at) {
    lanes[at].lane = lane_of(scheme.morphisms[plan.calls[at].morphism]);
    apart = apart || lanes[at].lane != Lane::kWork;
  }
  if (!apart) return lanes;

  std::vector<std::vector<Access>> uses(lanes.size());
  std::array<std::vector<int>, kNumLanes> ran;   // places, in order
  std::vector<Known> known_after(lanes.size());  // what a call that waits for this one knows
  std::array<Known, kNumLanes> known = {};
  for (Known& k : known) k.fill(-1);
  const auto must_wait = [&](size_t at, int before) {
    for (const Access& a : uses[at]) {
      for (const Access& b : uses[before]) {
        if (collide(a, b)) return true;
      }
    }
    return false;
  };
  for (size_t at = 0; at < lanes.size(); ++at) {
    if (plan.calls[at].is_view) continue;
    uses[at] = accesses(scheme, plan, plan.calls[at]);
    const auto own = static_cast<size_t>(lanes[at].lane);
    // The latest call is waited for first: whatever it has waited for itself needs no wait of its
    // own.
    std::vector<int> found;
    for (size_t other = 0; other < kNumLanes; ++other) {
      if (other == own && lanes[at].lane != Lane::kRanks) continue;
      const auto latest = std::find_if(ran[other].rbegin(), ran[other].rend(), [&](int before) {
        return before <= known[own][other] || must_wait(at, before);
      });
      if (latest != ran[other].rend() && *latest > known[own][other]) found.push_back(*latest);
    }
    std::sort(found.rbegin(), found.rend());
    for (const int before : found) {
      if (before <= known[own][static_cast<size_t>(lanes[before].lane)]) continue;
      learn(known[own], known_after[before]);
      lanes[at].waits.push_back(before);
      lanes[before].is_awaited = true;
    }
    // A collective that has begun is not done when the next one begins.
    if (lanes[at].lane != Lane::kRanks) known[own][own] = static_cast<int>(at);
    known_after[at] = known[own];
    known_after[at][own] = static_cast<int>(at);
    ran[own].push_back(static_cast<int>(at));
  }
  return lanes;
}

namespace {

// Who reads and who overwrites an object, by place. Views count as what they show, and those that
// are copied as any other call.
class Uses {
 public:
  Uses(const Scheme& scheme, const std::vector<int>& order, const std::vector<bool>& is_view)
      : shown_(scheme.objects.size()),
        read_(scheme.objects.size()),
        overwritten_(scheme.objects.size()) {
    for (size_t v = 0; v < shown_.size(); ++v) shown_[v] = static_cast<Value>(v);
    std::vector<int> made_at(scheme.objects.size(), -1);
    for (size_t at = 0; at < order.size(); ++at) {
      const Morphism& m = scheme.morphisms[order[at]];
      for (const Value out : m.outputs) made_at[out] = static_cast<int>(at);
      if (op_named(m.op).view && is_view[at]) {
        shown_[m.outputs[0]] = shown_[m.inputs[0]];
        continue;
      }
      for (const Value in : m.inputs) read_[shown_[in]].push_back(static_cast<int>(at));
    }
    const auto overwrites = [&](Value before, Value after) {
      if (made_at[after] >= 0) overwritten_[shown_[before]].push_back(made_at[after]);
    };
    for (const Carry& c : scheme.carries) overwrites(c.in, c.out);
    for (const Carry& c : scheme.loop) overwrites(c.in, c.out);
    const std::vector<Value> grown = grown_from(scheme);
    for (size_t v = 0; v < grown.size(); ++v) {
      if (grown[v] >= 0) overwrites(grown[v], static_cast<Value>(v));
    }
  }

  int next_read(Value v, int at, int end) const { return next(read_[shown_[v]], at, end); }
  int next_overwritten(Value v, int at, int end) const {
    return next(overwritten_[shown_[v]], at, end);
  }

 private:
  static int next(const std::vector<int>& places, int at, int end) {
    for (const int place : places) {
      if (place > at) end = std::min(end, place);
    }
    return end;
  }
  std::vector<Value> shown_;
  std::vector<std::vector<int>> read_, overwritten_;  // places, per object that is no view
};

}  // namespace

std::vector<int> done_before(const Scheme& scheme, const std::vector<int>& order,
                             const std::vector<bool>& is_view) {
  std::vector<int> done(order.size());
  std::vector<int> collectives;
  for (size_t i = 0; i < order.size(); ++i) {
    const int at = static_cast<int>(i);
    done[at] = at + 1;
    if (lane_of(scheme.morphisms[order[at]]) == Lane::kRanks) collectives.push_back(at);
  }
  if (collectives.empty()) return done;
  const Uses uses(scheme, order, is_view);
  std::map<Section, int> ends;  // sections are contiguous
  for (size_t i = 0; i < order.size(); ++i) {
    ends[scheme.morphisms[order[i]].section] = static_cast<int>(i) + 1;
  }
  std::map<int64_t, int> sent;  // messages by their number: places
  for (const int at : collectives) {
    const Morphism& m = scheme.morphisms[order[at]];
    int& until = done[at];
    until = ends[m.section];
    for (const Value out : m.outputs) until = uses.next_read(out, at, until);
    for (const Value in : m.inputs) until = uses.next_overwritten(in, at, until);
    const auto number = m.attrs.find("message");
    if (number != m.attrs.end()) sent[std::get<int64_t>(number->second)] = at;
  }
  // Whoever has read an answer knows that what it answers has arrived.
  for (const int at : collectives) {
    const Morphism& m = scheme.morphisms[order[at]];
    const auto answers = m.attrs.find("answers");
    if (answers == m.attrs.end()) continue;
    for (const int64_t number : std::get<std::vector<int64_t>>(answers->second)) {
      const auto place = sent.find(number);
      if (place != sent.end() && place->second < done[at]) {
        done[place->second] = std::min(done[place->second], done[at]);
      }
    }
  }
  return done;
}

std::vector<int> done_before(const Scheme& scheme, const Plan& plan) {
  std::vector<int> order;
  order.reserve(plan.calls.size());
  std::vector<bool> is_view;
  for (const PlannedCall& call : plan.calls) {
    order.push_back(call.morphism);
    is_view.push_back(call.is_view);
  }
  return done_before(scheme, order, is_view);
}

std::vector<double> end_times(const std::vector<LanedCall>& lanes,
                              const std::vector<double>& seconds, int begin, int end) {
  std::vector<double> ends(lanes.size(), 0);
  std::array<double, kNumLanes> free = {};
  for (int at = begin; at < end; ++at) {
    double& own = free[static_cast<size_t>(lanes[at].lane)];
    // A collective begins when the work has come to its place.
    if (lanes[at].lane == Lane::kRanks) own = std::max(own, free[0]);
    for (const int before : lanes[at].waits) {
      if (before >= begin) own = std::max(own, ends[before]);
    }
    ends[at] = own += seconds[at];
  }
  return ends;
}

}  // namespace adjoint
