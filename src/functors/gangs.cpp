#include "functors/gangs.h"

#include <set>

#include "analysis/totals.h"
#include "base/text.h"

namespace adjoint {

std::string gang_kind(const Morphism& m) {
  std::string kind = m.op + " " + std::string(name(m.phase)) + std::string(name(m.section)) +
                     std::to_string(m.epoch);
  for (const auto& [key, attr] : m.attrs) {
    if (!is_bookkeeping(key)) kind += " " + key + "=" + to_string(attr);
  }
  return kind;
}

Morphism join_calls(const std::vector<const Morphism*>& calls, size_t own, Source source) {
  const Morphism& last = *calls.back();
  const auto shared = static_cast<int64_t>(own);
  Morphism gang = last;
  gang.op = "gang";
  gang.source = std::move(source);
  gang.inputs.clear();
  gang.outputs.clear();
  std::set<Value> after;
  std::vector<std::string> from;
  for (const Morphism* m : calls) {
    gang.inputs.insert(gang.inputs.end(), m->inputs.begin(), m->inputs.begin() + shared);
    gang.outputs.insert(gang.outputs.end(), m->outputs.begin(), m->outputs.end());
    after.insert(m->after.begin(), m->after.end());
    from.push_back(to_string(m->source));
  }
  gang.inputs.insert(gang.inputs.end(), last.inputs.begin() + shared, last.inputs.end());
  gang.after.assign(after.begin(), after.end());
  gang.attrs.erase("repeated");  // one call's
  gang.attrs["op"] = last.op;
  gang.attrs["calls"] = static_cast<int64_t>(calls.size());
  gang.attrs["shared"] = static_cast<int64_t>(last.inputs.size() - own);
  gang.attrs["from"] = join(from, " ");
  return gang;
}

Scheme with_gangs(Scheme scheme, const std::map<int, std::vector<int>>& at, const Source& source) {
  std::set<int> joined;
  std::map<int, Morphism> gangs;
  for (const auto& [place, members] : at) {
    joined.insert(members.begin(), members.end());
    std::vector<const Morphism*> calls;
    for (const int call : members) calls.push_back(&scheme.morphisms[call]);
    gangs.emplace(place, join_calls(calls, calls.back()->inputs.size(), source));
  }
  return with_gangs(std::move(scheme), std::move(gangs), joined);
}

Scheme with_gangs(Scheme scheme, std::map<int, Morphism> gangs, const std::set<int>& joined) {
  if (gangs.empty()) return scheme;
  std::vector<Morphism> left;
  left.reserve(scheme.morphisms.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const int m = static_cast<int>(i);
    if (const auto gang = gangs.find(m); gang != gangs.end()) {
      left.push_back(std::move(gang->second));
    } else if (!joined.count(m)) {
      left.push_back(std::move(scheme.morphisms[i]));
    }
  }
  scheme.morphisms = std::move(left);
  return scheme;
}

}  // namespace adjoint
