// What every plan must hold, checked without knowing how it was made.
#include <algorithm>

#include "base/error.h"
#include "plan/owners.h"
#include "plan/plan.h"

namespace adjoint {

namespace {

// Some bytes for some time, all bounds included but `end`.
struct Stay {
  int64_t begin, end;
  int first, last;
};

// Whether two of them share a byte at some time. Stays that have ended are removed when another one
// needs their bytes.
bool some_overlap(std::vector<Stay> stays) {
  std::sort(stays.begin(), stays.end(),
            [](const Stay& a, const Stay& b) { return a.first < b.first; });
  std::map<int64_t, const Stay*> there;  // by begin
  for (const Stay& stay : stays) {
    if (stay.begin == stay.end) continue;
    auto at = there.lower_bound(stay.begin);
    if (at != there.begin() && std::prev(at)->second->end > stay.begin) --at;
    while (at != there.end() && at->first < stay.end) {
      if (at->second->last >= stay.first) return true;
      at = there.erase(at);
    }
    there[stay.begin] = &stay;
  }
  return false;
}

void verify_arena(const Plan& plan, Tier tier) {
  std::vector<Stay> stays;
  for (const Storage& s : plan.storages) {
    if (s.tier != tier) continue;
    CHECK(s.offset.count >= 0 && s.offset + s.size <= plan.arena_of(tier).size,
          "a storage is in the arena");
    stays.push_back({s.offset.count, (s.offset + s.size).count, s.first, s.last});
  }
  CHECK(!some_overlap(std::move(stays)), "two live storages overlap");
}

// Sections are contiguous, and what the body reads from before it exists in every iteration.
void verify_sections(const Scheme& scheme, const Plan& plan) {
  std::vector<bool> made_in_body(scheme.objects.size(), false);
  const bool repeats = scheme.parts > 1 || !scheme.loop.empty();
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const int at = static_cast<int>(i);
    const Morphism& m = scheme.morphisms[plan.calls[at].morphism];
    const Section section = at < plan.body_begin ? Section::kPrologue
                            : at < plan.body_end ? Section::kBody
                                                 : Section::kEpilogue;
    CHECK(m.section == section, "a call is in its section: " + m.op + " at " + to_string(m.source));
    if (section != Section::kBody || !repeats) continue;
    for (const Value v : m.outputs) made_in_body[v] = true;
    for (const Value v : m.inputs) {
      if (made_in_body[v]) continue;
      CHECK(plan.storages[plan.places[v].storage].last >= plan.body_end - 1,
            "what the body reads again lives to its end: " + to_string(scheme[v].source));
    }
  }
  for (const Carry& c : scheme.loop) {
    const Storage& s = plan.storages[plan.places[c.out].storage];
    CHECK(plan.places[c.in].storage == plan.places[c.out].storage,
          "an accumulator grows in its place: " + to_string(scheme[c.in].source));
    CHECK(s.first <= plan.body_begin && s.last >= plan.body_end - 1,
          "an accumulator lives through the body: " + to_string(scheme[c.in].source));
  }
}

// While a storage is alive, every byte of it has one tenant: no two tenants overlap, and together
// they cover all bytes at all times.
void verify_tenants(const Plan& plan) {
  for (const Storage& s : plan.storages) {
    int64_t owned = 0;
    std::vector<Stay> stays;
    for (const Tenant& t : s.tenants) {
      CHECK(
          t.from >= s.first && t.to <= s.last && t.offset.count >= 0 && t.offset + t.size <= s.size,
          "a tenant is inside its storage");
      owned += (int64_t{t.to} - t.from + 1) * t.size.count;
      if (t.from <= t.to) {
        stays.push_back({t.offset.count, (t.offset + t.size).count, t.from, t.to});
      }
    }
    CHECK(owned == (int64_t{s.last} - s.first + 1) * s.size.count, "every byte has one owner");
    CHECK(stays.size() < 2 || !some_overlap(std::move(stays)), "every byte has one owner");
  }
}

// Landings own their bytes during the whole step, because data may arrive at any time.
void verify_landings(const Scheme& scheme, const Plan& plan) {
  for (const auto& [v, storage] : plan.landings) {
    const Storage& s = plan.storages[storage];
    CHECK(s.tier == Tier::kDevice && s.size == scheme[v].type.bytes() &&
              s.offset + s.size <= plan.state_end && s.first == 0 &&
              s.last == static_cast<int>(plan.calls.size()),
          "data lands where nothing else ever lies: " + to_string(scheme[v].source));
  }
}

}  // namespace

void verify_plan(const Scheme& scheme, const Plan& plan) {
  verify_landings(scheme, plan);
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) verify_arena(plan, tier);
  verify_sections(scheme, plan);
  for (size_t v = 0; v < plan.places.size(); ++v) {
    const Place& place = plan.places[v];
    CHECK(place.storage >= 0, "every object has a place");
    CHECK(plan.storages[place.storage].tier == scheme.objects[v].attributes.tier,
          "an object lies in its tier: " + to_string(scheme.objects[v].source));
    const Type& type = scheme.objects[v].type;
    int64_t furthest = 0;
    for (int a = 0; a < type.rank(); ++a) furthest += (type.dim(a) - 1) * place.strides[a];
    const Bytes need = place.offset + (furthest + 1) * size_of(type.dtype);
    CHECK(need <= plan.storages[place.storage].size, "an object is inside its storage");
  }
  verify_tenants(plan);
  const std::string spoiled = spoiled_read(scheme, plan);
  CHECK(spoiled.empty(), spoiled);
}

}  // namespace adjoint
