// linear(x, Wq), linear(x, Wk), linear(x, Wv)  ->  slices of linear(x, concat(Wq, Wk, Wv)). One
// large product reads x once and fills the machine better than several small ones. Parameters stay
// objects of their own, placed adjacently so that the concat is a view; slices are views too, and
// their gradients are made inside one object. The gradient of x is one sum over all rows of the
// joined weight instead of a sum of sums, so the law is reassociating. Only maps of one role are
// joined, so that a rule about attention does not reach a feed-forward map.
#include <algorithm>
#include <map>

#include "analysis/graph.h"
#include "analysis/roles.h"
#include "functors/functor.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

// A linear map with parameters of its own, whose result is neither returned nor carried.
bool is_projection(const Graph& graph, const Morphism& m) {
  const Scheme& scheme = graph.scheme();
  if (op_named(m.op).weight < 0) return false;
  for (size_t k = 1; k < m.inputs.size(); ++k) {
    const Object& p = scheme[m.inputs[k]];
    if (p.role != Role::kParameter || graph.readers(m.inputs[k]).size() != 1) return false;  // tied
    for (const Axis& axis : p.type.axes) {
      if (axis.physical() != axis.size) return false;
    }
  }
  const Value out = m.outputs[0];
  if (std::count(scheme.outputs.begin(), scheme.outputs.end(), out)) return false;
  return std::none_of(graph.readers(out).begin(), graph.readers(out).end(), [&](int reader) {
    const Morphism& r = graph.call(reader);
    return op_named(r.op).loss && r.inputs[0] == out;
  });
}

bool same_kind(const Object& a, const Object& b) {
  return a.type.dtype == b.type.dtype && a.frozen == b.frozen && a.attributes == b.attributes;
}

// Whether two projections of one object may be joined. A trained one is not joined with a frozen
// one, because the frozen rows would get gradients.
bool fits(const Scheme& scheme, const Morphism& a, const Morphism& b) {
  if (a.inputs[0] != b.inputs[0] || a.inputs.size() != b.inputs.size()) return false;
  if (a.phase != b.phase || !may_join(scheme, a, b)) return false;
  for (size_t k = 1; k < a.inputs.size(); ++k) {
    if (!same_kind(scheme[a.inputs[k]], scheme[b.inputs[k]])) return false;
  }
  return scheme[a.outputs[0]].attributes == scheme[b.outputs[0]].attributes;
}

// Groups of morphisms to join, by the first of each.
std::map<int, std::vector<int>> find_groups(const Scheme& scheme) {
  const Graph graph(scheme);
  const Roles roles(scheme);
  // What a functor added to some blocks is not joined with what all blocks have: they stay alike.
  const std::vector<bool> is_addition = find_additions(scheme).is_addition;
  std::map<int, std::vector<int>> groups;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (!is_projection(graph, m)) continue;
    const auto home = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return roles.use_of(group.first) == roles.use_of(static_cast<int>(i)) &&
             is_addition[group.first] == is_addition[i] &&
             fits(scheme, scheme.morphisms[group.first], m);
    });
    groups[home == groups.end() ? static_cast<int>(i) : home->first].push_back(static_cast<int>(i));
  }
  std::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
  return groups;
}

// Emits the joined map and its slices, which replace the single maps' results.
void emit_joined(Scheme& result, const Scheme& scheme, const std::vector<int>& group) {
  const Morphism& first = scheme.morphisms[group[0]];
  const auto mark = [&](Morphism& m) { m.epoch = first.epoch, m.section = first.section; };
  Builder builder(result);
  std::vector<Value> operands = {first.inputs[0]};
  for (size_t k = 1; k < first.inputs.size(); ++k) {
    std::vector<Value> parameters;
    for (const int i : group) parameters.push_back(scheme.morphisms[i].inputs[k]);
    const Object whose = scheme[parameters[0]];
    builder.at({whose.source.path + ".joined", whose.source.facet}, first.phase, Role::kActivation);
    const Value joined = builder.emit("concat", parameters);
    result[joined].attributes = whose.attributes;
    if (!dtype_named(whose.attributes.precision)) result[joined].attributes.precision.clear();
    mark(result.morphisms.back());
    operands.push_back(joined);
  }
  const Object whose = scheme[first.outputs[0]];
  builder.at({whose.source.path + ".joined", whose.source.facet}, first.phase, whose.role);
  const Value all = builder.emit("linear", operands);
  result[all].attributes = whose.attributes;
  mark(result.morphisms.back());
  int64_t start = 0;
  for (const int i : group) {
    const Morphism& old = scheme.morphisms[i];
    const int64_t size = scheme[old.outputs[0]].type.dim(-1);
    Morphism slice = old;
    slice.op = "slice";
    slice.inputs = {all};
    slice.attrs = {{"start", start}, {"size", size}};
    result.morphisms.push_back(std::move(slice));
    start += size;
  }
}

Scheme join_projections(const Scheme& scheme, Application& application) {
  const std::map<int, std::vector<int>> groups = find_groups(scheme);
  application.matches += static_cast<int64_t>(groups.size());
  if (groups.empty()) return scheme;
  std::vector<bool> joined(scheme.morphisms.size(), false);
  for (const auto& [first, group] : groups) {
    for (const int i : group) joined[i] = true;
  }
  Scheme result = scheme;
  result.morphisms.clear();
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    if (const auto found = groups.find(static_cast<int>(i)); found != groups.end()) {
      emit_joined(result, scheme, found->second);
    } else if (!joined[i]) {
      result.morphisms.push_back(scheme.morphisms[i]);
    }
  }
  return result;
}

}  // namespace

extern const Functor functor_join_projections = {
    .name = "join_projections",
    .summary = "linear maps that read one object become one, and slices of its result",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kMorphisms, join_projections}},
};

}  // namespace adjoint
