#include "report/timeline_json.h"

#include <algorithm>

#include "analysis/structure.h"
#include "report/memory_table.h"

namespace adjoint {

namespace {

using nlohmann::json;

json stretches_json(const std::vector<Stretch>& stretches) {
  json out = json::array();
  for (const Stretch& s : stretches) {
    out.push_back({{"name", s.name}, {"first", s.first}, {"last", s.last}});
  }
  return out;
}

// Who reads each object last, as a place in the order; -1: nobody does. Who reads a view reads what
// it is a view of.
std::vector<int> last_readers(const Scheme& scheme, const Plan& plan) {
  std::vector<int> last(scheme.objects.size(), -1);
  for (int at = static_cast<int>(plan.calls.size()) - 1; at >= 0; --at) {
    const Morphism& m = scheme.morphisms[plan.calls[at].morphism];
    int read = at;
    if (plan.calls[at].is_view) {
      for (const Value out : m.outputs) read = std::max(read, last[out]);
    }
    for (const Value in : m.inputs) last[in] = std::max(last[in], read);
  }
  return last;
}

json tier_json(const Scheme& scheme, const Plan& plan, const Timeline& t) {
  const Chain chain = find_chain(scheme);
  const std::vector<int> made_by = producers(scheme);
  const std::vector<int> read_last = last_readers(scheme, plan);
  json calls = json::array(), held = json::array(), live = json::object();
  for (const Moment& moment : t.moments) {
    const int i = plan.calls[moment.place].morphism;
    const Morphism& m = scheme.morphisms[i];
    json one = {{"source", to_string(m.source)},
                {"op", m.op},
                {"kind", name(t.kinds[moment.place])},
                {"begins", moment.begins},
                {"ends", moment.ends},
                {"from", moment.from},
                {"to", moment.to},
                {"part", moment.part},
                {"place", moment.place}};
    if (!chain.block_of_morphism.empty() && chain.block_of_morphism[i] >= 0) {
      one["block"] = chain.block_of_morphism[i];
    }
    if (moment.beside) one["beside"] = true;
    if (const int along = t.speaks_along[moment.place]; along >= 0) one["lane"] = t.spoken[along];
    calls.push_back(std::move(one));
  }
  for (const Category category : kLayers) {
    json bytes = json::array();
    bool any = false;
    for (const CategoryBytes& at : t.live) {
      bytes.push_back(at[static_cast<size_t>(category)]);
      any = any || at[static_cast<size_t>(category)] > 0;
    }
    if (any) live[key_of(category)] = std::move(bytes);
  }
  const auto source_of = [&](int morphism) {
    return morphism < 0 ? std::string() : to_string(scheme.morphisms[morphism].source);
  };
  for (const Owner& owner : owners(plan, t.tier)) {
    json one = {{"category", key_of(owner.category)},
                {"from", owner.from},
                {"to", owner.to},
                {"bytes", owner.size.count}};
    if (owner.object >= 0) {
      one["source"] = to_string(scheme[owner.object].source);
      one["made_by"] = source_of(made_by[owner.object]);
      const int at = read_last[owner.object];
      one["last_reader"] = at < 0 ? "" : source_of(plan.calls[at].morphism);
    } else {
      const std::string call = source_of(plan.calls[owner.from].morphism);
      one["source"] = call + " workspace";
      one["made_by"] = call;
      one["last_reader"] = call;
    }
    held.push_back(std::move(one));
  }
  json out = {{"in_seconds", t.in_seconds},
              {"length", t.length()},
              {"arena_bytes", t.arena.count},
              {"peak_bytes", t.peak.count},
              {"peak_at", t.peak_at},
              {"peak_words", t.peak_words},
              {"parts", t.parts},
              {"body_once", t.body_once},
              {"calls", std::move(calls)},
              {"live", std::move(live)},
              {"owners", std::move(held)},
              {"sections", stretches_json(t.sections)},
              {"phases", stretches_json(t.phases)},
              {"blocks", stretches_json(t.blocks)}};
  if (t.in_seconds) out["step_s"] = t.step();
  return out;
}

// As many parts as somebody who looks at one after the other may want.
constexpr int kMostParts = 8;

}  // namespace

json timeline_json(const Scheme& scheme, const Plan& plan, const std::vector<double>& seconds,
                   bool copies_overlap, const StepClock& clock) {
  TimelineOptions options{.seconds = seconds,
                          .most_parts = kMostParts,
                          .copies_overlap = copies_overlap,
                          .collectives_overlap = true,
                          .clock_of_step = clock};
  json out = tier_json(scheme, plan, make_timeline(scheme, plan, options));
  if (plan.host.size.count > 0) {
    options.tier = Tier::kHost;
    out["host"] = tier_json(scheme, plan, make_timeline(scheme, plan, options));
  }
  return out;
}

}  // namespace adjoint
