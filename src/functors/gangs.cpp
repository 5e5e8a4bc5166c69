#include "functors/gangs.h"

#include <algorithm>
#include <set>

#include "analysis/totals.h"
#include "base/text.h"
#include "functors/functor.h"

namespace adjoint {

void GangKinds::add(int call, const std::string& more) {
  const Morphism& m = scheme_.morphisms[call];
  std::string kind = m.op + " " + std::string(name(m.phase));
  for (const auto& [key, attr] : m.attrs) {
    if (!is_bookkeeping(key)) kind += " " + key + "=" + to_string(attr);
  }
  kind += " " + more;
  // Those that may not join are of another kind, with a number behind it.
  for (int n = 0;; ++n) {
    std::vector<int>& calls = by_kind_[n ? kind + " " + std::to_string(n) : kind];
    if (!calls.empty() && !may_join(scheme_, scheme_.morphisms[calls[0]], m)) continue;
    calls.push_back(call);
    return;
  }
}

std::string operand_dtypes(const Scheme& scheme, const Morphism& m) {
  std::string text = "of";
  for (const Value in : m.inputs) text += " " + std::string(name(scheme[in].type.dtype));
  return text;
}

namespace {

Morphism joined(const Scheme& scheme, const Gang& gang) {
  const Morphism& last = scheme.morphisms[gang.calls.back()];
  const auto own = static_cast<int64_t>(last.inputs.size() - gang.shared);
  Morphism one = last;
  one.op = "gang";
  one.source = gang.source;
  one.inputs.clear();
  one.outputs.clear();
  std::set<Value> after;
  std::vector<std::string> from;
  for (const int call : gang.calls) {
    const Morphism& m = scheme.morphisms[call];
    one.inputs.insert(one.inputs.end(), m.inputs.begin(), m.inputs.begin() + own);
    one.outputs.insert(one.outputs.end(), m.outputs.begin(), m.outputs.end());
    after.insert(m.after.begin(), m.after.end());
    from.push_back(to_string(m.source));
  }
  one.inputs.insert(one.inputs.end(), last.inputs.begin() + own, last.inputs.end());
  one.after.assign(after.begin(), after.end());
  one.attrs.erase("repeated");  // one call's
  one.attrs["op"] = last.op;
  one.attrs["calls"] = static_cast<int64_t>(gang.calls.size());
  one.attrs["shared"] = static_cast<int64_t>(gang.shared);
  one.attrs["from"] = join(from, " ");
  return one;
}

}  // namespace

Scheme with_gangs(Scheme scheme, const std::vector<Gang>& gangs, Application& application) {
  std::set<int> gone;
  std::map<int, Morphism> by_place;
  for (const Gang& gang : gangs) {
    gone.insert(gang.calls.begin(), gang.calls.end());
    by_place.emplace(gang.at, joined(scheme, gang));
    application.matches += static_cast<int64_t>(gang.calls.size());
    ++application.counts["gangs"];
  }
  if (gangs.empty()) return scheme;
  std::vector<Morphism> left;
  left.reserve(scheme.morphisms.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const int m = static_cast<int>(i);
    if (const auto gang = by_place.find(m); gang != by_place.end()) {
      left.push_back(std::move(gang->second));
    } else if (!gone.count(m)) {
      left.push_back(std::move(scheme.morphisms[i]));
    }
  }
  scheme.morphisms = std::move(left);
  return scheme;
}

}  // namespace adjoint
