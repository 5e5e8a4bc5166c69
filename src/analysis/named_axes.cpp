#include "analysis/named_axes.h"

#include <cctype>
#include <numeric>
#include <set>

namespace adjoint {

NamedAxes::NamedAxes(const Scheme& scheme) {
  find_positions(scheme);
  heads_ = find_parameters(scheme, [](const Morphism& m, const OpCall& call) {
    if (!op_named(m.op).attends) return std::optional<CutCall>();
    const IndexMap map = index_map_of(call);
    const MergedAxis* row = map.merged_axis(map.inputs[0].back());
    if (!row) return std::optional<CutCall>();
    const char letter = row->segments[0][0];
    return std::optional(CutCall{{letter}, size_along(call, letter)});
  });
  rows_ = find_parameters(scheme, [](const Morphism& m, const OpCall& call) {
    const int weight = op_named(m.op).weight;
    if (weight < 0) return std::optional<CutCall>();
    const std::string letters = index_map_of(call).inputs[weight];
    return std::optional(CutCall{{letters[letters.size() - 2]}});
  });
}

std::optional<int> NamedAxes::positions(Value v) const {
  return positions_[v] < 0 ? std::nullopt : std::optional(positions_[v]);
}

std::optional<HeadsWithin> NamedAxes::heads(Value parameter) const {
  const auto found = heads_.find(parameter);
  return found == heads_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int> NamedAxes::rows(Value parameter) const {
  const auto found = rows_.find(parameter);
  return found == rows_.end() ? std::nullopt : std::optional(found->second.axis);
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

// The parameters of which, and of nothing else, an object is made.
std::set<Value> made_of(const Scheme& scheme, const std::vector<int>& made_by, Value v) {
  std::set<Value> parameters;
  std::vector<Value> left = {v};
  while (!left.empty()) {
    const Value one = left.back();
    left.pop_back();
    if (scheme[one].role == Role::kParameter) {
      parameters.insert(one);
    } else if (made_by[one] < 0) {
      return {};
    } else {
      const std::vector<Value>& inputs = scheme.morphisms[made_by[one]].inputs;
      left.insert(left.end(), inputs.begin(), inputs.end());
    }
  }
  return parameters;
}

}  // namespace

// Against the arrows, from calls whose work is cut to the parameters that they read. What is made
// of a parameter as a whole (a matrix that is rounded with one scale) and has its shape lies as the
// parameter does.
std::map<Value, HeadsWithin> NamedAxes::find_parameters(const Scheme& scheme, const CutOf& cut_of) {
  std::map<Value, std::pair<Share, int64_t>> wanted;
  const auto want = [&](Value v, const Share& share, int64_t parts) {
    if (!share.is_piece()) return;
    const auto [found, fresh] = wanted.emplace(v, std::pair{share, parts});
    if (fresh || found->second.first.axis != share.axis) return;
    auto& [already, count] = found->second;
    already.segments = cut_at_both(already.segments, share.segments);
    count = std::gcd(count, parts);
  };
  const std::vector<int> made_by = producers(scheme);
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (m.phase != Phase::kForward) continue;
    const OpCall call = call_of(scheme, m);
    std::optional<CutCall> asked = cut_of(m, call);
    for (size_t k = 0; k < m.outputs.size() && !asked; ++k) {
      const auto found = wanted.find(m.outputs[k]);
      if (found == wanted.end()) continue;
      const auto [share, parts] = found->second;
      if (const auto cut = cut_giving(call, k, share, 1)) {
        asked = {*cut, parts};
        continue;
      }
      for (const Value parameter : made_of(scheme, made_by, m.outputs[k])) {
        const bool like = same_shape(scheme[parameter].type, scheme[m.outputs[k]].type);
        if (like) want(parameter, share, parts);
      }
    }
    if (!asked) continue;
    const std::vector<Share> whole(m.inputs.size(), kWhole);
    const CallShares shares = shares_along(call, whole, m.outputs.size(), asked->cut);
    for (size_t k = 0; k < m.inputs.size(); ++k) want(m.inputs[k], shares.wants[k], asked->parts);
  }
  std::map<Value, HeadsWithin> parameters;
  for (const auto& [v, said] : wanted) {
    if (scheme[v].role != Role::kParameter) continue;
    parameters[v] = {said.first.axis, said.first.segments, said.second};
  }
  return parameters;
}

}  // namespace adjoint
