#include "analysis/named_axes.h"

#include <cctype>
#include <numeric>
#include <set>

namespace adjoint {

NamedAxes::NamedAxes(const Scheme& scheme) {
  find_positions(scheme);
  find_heads(scheme);
}

std::optional<int> NamedAxes::positions(Value v) const {
  return positions_[v] < 0 ? std::nullopt : std::optional(positions_[v]);
}

std::optional<HeadsWithin> NamedAxes::heads(Value parameter) const {
  const auto found = heads_.find(parameter);
  return found == heads_.end() ? std::nullopt : std::optional(found->second);
}

// Along the arrows: a letter that an operand has for positions means them in the results, too.
void NamedAxes::find_positions(const Scheme& scheme) {
  positions_.assign(scheme.objects.size(), -1);
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kInput && scheme[in].type.rank() > 1) positions_[in] = 1;
  }
  for (const Morphism& m : scheme.morphisms) {
    const IndexMap map = index_map_of(call_of(scheme, m));
    char letter = 0;
    for (size_t i = 0; i < m.inputs.size() && !letter; ++i) {
      const int axis = positions_[m.inputs[i]];
      if (axis >= 0 && std::islower(static_cast<unsigned char>(map.inputs[i][axis]))) {
        letter = map.inputs[i][axis];
      }
    }
    for (size_t k = 0; letter && k < m.outputs.size(); ++k) {
      const size_t axis = map.outputs[k].find(letter);
      if (axis != std::string::npos) positions_[m.outputs[k]] = static_cast<int>(axis);
    }
  }
}

namespace {

// An axis that one reader wants cut here and another one there is cut at both places.
std::vector<int64_t> cut_at_both(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  std::set<int64_t> ends;
  for (const std::vector<int64_t>& segments : {a, b}) {
    int64_t end = 0;
    for (const int64_t size : segments) ends.insert(end += size);
  }
  std::vector<int64_t> both;
  int64_t from = 0;
  for (const int64_t end : ends) both.push_back(end - from), from = end;
  return both;
}

}  // namespace

// Against the arrows, from attentions whose work is cut by heads to the parameters of the maps that
// they read.
void NamedAxes::find_heads(const Scheme& scheme) {
  std::map<Value, std::pair<Share, int64_t>> wanted;
  const auto want = [&](Value v, const Share& share, int64_t heads) {
    if (!share.is_piece()) return;
    const auto [found, fresh] = wanted.emplace(v, std::pair{share, heads});
    if (fresh || found->second.first.axis != share.axis) return;
    auto& [already, count] = found->second;
    already.segments = cut_at_both(already.segments, share.segments);
    count = std::gcd(count, heads);
  };
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    const OpCall call = call_of(scheme, m);
    const std::vector<Share> whole(m.inputs.size(), kWhole);
    std::optional<Cut> cut;
    int64_t heads = 0;
    if (op_named(m.op).attends) {
      const IndexMap map = index_map_of(call);
      const MergedAxis* row = map.merged_axis(map.inputs[0].back());
      if (!row) continue;
      cut = Cut{row->segments[0][0]};
      heads = size_along(call, cut->letter);
    }
    for (size_t k = 0; k < m.outputs.size() && !cut; ++k) {
      const auto found = wanted.find(m.outputs[k]);
      if (found == wanted.end()) continue;
      cut = cut_giving(call, k, found->second.first, 1);
      heads = found->second.second;
    }
    if (!cut) continue;
    const CallShares shares = shares_along(call, whole, m.outputs.size(), *cut);
    for (size_t k = 0; k < m.inputs.size(); ++k) want(m.inputs[k], shares.wants[k], heads);
  }
  for (const auto& [v, said] : wanted) {
    if (scheme[v].role != Role::kParameter) continue;
    heads_[v] = {said.first.axis, said.first.segments, said.second};
  }
}

}  // namespace adjoint
