#include "analysis/accumulators.h"

#include <algorithm>
#include <map>

#include "ops/op_def.h"

namespace adjoint {

namespace {

class Ways {
 public:
  explicit Ways(const Scheme& scheme)
      : scheme_(scheme),
        made_by_(producers(scheme)),
        read_by_(readers(scheme)),
        outside_(returned_or_carried(scheme)) {}

  // From `v` back to `begin`, each made in place of the next.
  bool find(Value v, Value begin, std::vector<Value>& way) const {
    way.push_back(v);
    if (v == begin) return true;
    const int maker = made_by_[v];
    if (maker >= 0 && scheme_.morphisms[maker].section == Section::kBody) {
      const Morphism& m = scheme_.morphisms[maker];
      for (const auto& [output, operand] : overwritten_by(maker)) {
        const Value from = m.inputs[operand];
        if (m.outputs[output] == v && fits(from, v, maker) && (from == begin || !outside_[from]) &&
            find(from, begin, way)) {
          return true;
        }
      }
    }
    way.pop_back();
    return false;
  }

 private:
  // A gang of hundreds is asked once, not once for each of its sums.
  const std::vector<std::pair<int, int>>& overwritten_by(int m) const {
    const auto [known, fresh] = overwrites_.try_emplace(m);
    if (fresh) known->second = overwrites(call_of(scheme_, scheme_.morphisms[m]));
    return known->second;
  }

  // Nobody else reads what is written over.
  bool fits(Value from, Value to, int maker) const {
    const Morphism& m = scheme_.morphisms[maker];
    return scheme_[from].type == scheme_[to].type &&
           scheme_[from].attributes.tier == scheme_[to].attributes.tier &&
           read_by_[from] == std::vector<int>{maker} &&
           std::count(m.inputs.begin(), m.inputs.end(), from) == 1;
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<bool> outside_;
  mutable std::map<int, std::vector<std::pair<int, int>>> overwrites_;  // by morphism
};

}  // namespace

std::vector<Value> grown_from(const Scheme& scheme) {
  std::vector<Value> from(scheme.objects.size(), -1);
  if (scheme.loop.empty()) return from;
  const Ways ways(scheme);
  for (const Carry& c : scheme.loop) {
    std::vector<Value> way;
    if (!ways.find(c.out, c.in, way) || way.size() < 3) continue;
    for (size_t k = 0; k + 1 < way.size(); ++k) from[way[k]] = way[k + 1];
  }
  return from;
}

}  // namespace adjoint
