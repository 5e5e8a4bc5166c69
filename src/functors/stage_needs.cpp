// What a rank needs is found backward from what it must give: the calls of its chunks, the next
// values of its states, and the step's results.
#include "functors/stage_needs.h"

#include <algorithm>

#include "ops/op_def.h"

namespace adjoint {

StageNeeds::StageNeeds(const StageWork& work) : work_(work) {
  asked.resize(work.schedule.ranks);
  for (int rank = 0; rank < work.schedule.ranks; ++rank) find_calls(rank);
  find_homes();
  find_levels();
}

// A state that no call of a stage reads, such as the average of a tied parameter, is kept where its
// parameter is; what belongs to none, on the first rank. An evaluation keeps nothing.
void StageNeeds::find_homes() {
  const Scheme& scheme = work_.scheme;
  if (scheme.carries.empty()) return;
  std::map<std::string, Value> parameters;  // by path
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) parameters.emplace(scheme[in].source.path, in);
  }
  bool homeless = false;
  for (const Value in : scheme.inputs) {
    const Role role = scheme[in].role;
    if ((role != Role::kState && role != Role::kParameter) || first_holder.count(in)) continue;
    homeless = true;
    const auto owner = parameters.find(scheme[in].source.path);
    bool held = false;
    for (size_t rank = 0; rank < of_rank.size() && owner != parameters.end(); ++rank) {
      if (!of_rank[rank].holds.count(owner->second)) continue;
      asked[rank].insert(in);
      held = true;
    }
    if (!held) asked[0].insert(in);
  }
  if (!homeless) return;
  of_rank.clear();
  first_holder.clear();
  for (int rank = 0; rank < work_.schedule.ranks; ++rank) find_calls(rank);
}

// The calls that a rank makes: those of its chunks, and all that these, its states and the step's
// results need.
void StageNeeds::find_calls(int rank) {
  const Scheme& scheme = work_.scheme;
  OfRank all{
      .calls = std::vector<bool>(scheme.morphisms.size(), false), .from_others = {}, .holds = {}};
  std::vector<bool> wanted(scheme.objects.size(), false);
  const auto want = [&](Value v) { wanted[v] = true; };
  for (const Value out : scheme.outputs) want(out);
  for (const Value in : asked[rank]) want(in);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = scheme.morphisms.size(); i-- > 0;) {
      if (all.calls[i]) continue;
      const Morphism& m = scheme.morphisms[i];
      const bool is_wanted =
          std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return wanted[v]; });
      if (work_.home[i] >= 0 ? work_.home[i] != rank : !is_wanted) continue;
      all.calls[i] = changed = true;
      for (const Value in : m.inputs) want(in);
    }
    for (const Carry& c : scheme.loop) {
      if (wanted[c.out] && !wanted[c.in]) wanted[c.in] = changed = true;
      if (wanted[c.in] && !wanted[c.out]) wanted[c.out] = changed = true;
    }
    for (const Carry& c : scheme.carries) {
      if (wanted[c.in] && !wanted[c.out]) wanted[c.out] = changed = true;
    }
  }
  const auto note = [&](Value v) {
    const int from = work_.home_of(v);
    if (from >= 0 && from != rank) all.from_others.insert(v);
  };
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    if (!all.calls[i] || work_.work[i] != Work::kAfter) continue;
    for (const Value in : scheme.morphisms[i].inputs) note(in);
  }
  for (const Value out : scheme.outputs) note(out);
  for (const Carry& c : scheme.carries) {
    if (wanted[c.in]) note(c.out);
  }
  for (const Value in : scheme.inputs) {
    if (!wanted[in]) continue;
    all.holds.insert(in);
    first_holder.emplace(in, rank);
  }
  of_rank.push_back(std::move(all));
}

// State is written in place, so no level before the last that reads what it was writes it.
void StageNeeds::find_levels() {
  const Scheme& scheme = work_.scheme;
  const std::vector<std::vector<int>> read_by = readers(scheme);
  std::map<int, std::set<int>> written_after;  // per call that writes state: who reads the old one
  for (const Carry& c : scheme.carries) {
    const int writer = work_.made_by[c.out];
    if (writer < 0) continue;
    std::vector<Value> old = {c.in};  // and its views
    for (size_t k = 0; k < old.size(); ++k) {
      for (const int reader : read_by[old[k]]) {
        const OpDef& op = op_named(scheme.morphisms[reader].op);
        if (work_.work[reader] != Work::kAfter || reader == writer) continue;
        written_after[writer].insert(reader);
        if (op.view || op.lies == LiesWithin::kJoins) {
          old.push_back(scheme.morphisms[reader].outputs[0]);
        }
      }
    }
  }
  level.assign(scheme.objects.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      const Morphism& m = scheme.morphisms[i];
      if (work_.work[i] != Work::kAfter) continue;
      int most = 0;
      for (const Value in : m.inputs) {
        const bool crosses = work_.home_of(in) >= 0 && work_.home_of(in) != work_.home[i];
        most = std::max(most, level[in] + (crosses ? 1 : 0));
      }
      if (const auto found = written_after.find(static_cast<int>(i));
          found != written_after.end()) {
        for (const int reader : found->second) {
          most = std::max(most, level[scheme.morphisms[reader].outputs[0]]);
        }
      }
      for (const Value out : m.outputs) {
        if (level[out] < most) level[out] = most, changed = true;
      }
    }
  }
}

}  // namespace adjoint
