#include "plan/lanes.h"

#include <algorithm>

#include "ops/op_def.h"

namespace adjoint {

Lane lane_of(const Morphism& m) {
  if (!op_named(m.op).moves) return Lane::kWork;
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
      if (other == own) continue;
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
    known[own][own] = static_cast<int>(at);
    known_after[at] = known[own];
    ran[own].push_back(static_cast<int>(at));
  }
  return lanes;
}

std::vector<double> end_times(const std::vector<LanedCall>& lanes,
                              const std::vector<double>& seconds, int begin, int end) {
  std::vector<double> ends(lanes.size(), 0);
  std::array<double, kNumLanes> free = {};
  for (int at = begin; at < end; ++at) {
    double& own = free[static_cast<size_t>(lanes[at].lane)];
    for (const int before : lanes[at].waits) {
      if (before >= begin) own = std::max(own, ends[before]);
    }
    ends[at] = own += seconds[at];
  }
  return ends;
}

}  // namespace adjoint
