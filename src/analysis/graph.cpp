#include "analysis/graph.h"

#include <algorithm>
#include <map>

#include "ops/op_def.h"

namespace adjoint {

Graph::Graph(const Scheme& scheme)
    : scheme_(scheme),
      made_by_(producers(scheme)),
      read_by_(adjoint::readers(scheme)),
      stays_(returned_or_carried(scheme)),
      carried_(scheme.objects.size(), false),
      viewed_(scheme.objects.size(), -1),
      state_of_(scheme.objects.size(), -1),
      views_(scheme.objects.size()),
      held_by_(scheme.morphisms.size()),
      holds_(scheme.morphisms.size()) {
  for (const std::vector<Carry>* carries : {&scheme.carries, &scheme.loop}) {
    for (const Carry& c : *carries) carried_[c.in] = carried_[c.out] = true;
  }
  for (const Carry& c : scheme.carries) state_of_[c.out] = c.in;
  find_views();
  find_order();
}

void Graph::find_views() {
  for (const Morphism& m : scheme_.morphisms) {
    if (op_named(m.op).view) viewed_[m.outputs[0]] = m.inputs[0];
  }
  for (size_t v = 0; v < viewed_.size(); ++v) {
    if (viewed_[v] >= 0) views_[root(static_cast<Value>(v))].push_back(static_cast<Value>(v));
  }
}

void Graph::find_order() {
  const auto hold = [&](int later, int earlier) {
    held_by_[later].push_back(earlier);
    holds_[earlier].push_back(later);
  };
  for (int m = 0; m < num_calls(); ++m) {
    for (const Value v : call(m).after) {
      if (made_by_[v] >= 0) hold(m, made_by_[v]);
    }
  }
  for (const std::vector<Carry>* carries : {&scheme_.carries, &scheme_.loop}) {
    for (const Carry& c : *carries) {
      const int writer = made_by_[c.out];
      if (writer < 0) continue;
      for (const int reader : readers_of_state(c.in)) {
        // An accumulator's start is read in the iteration that makes its sum.
        if (reader != writer && call(reader).section == call(writer).section) hold(writer, reader);
      }
    }
  }
}

std::optional<int> Graph::only_reader(Value v) const {
  if (stays_[v] || read_by_[v].size() != 1) return std::nullopt;
  return read_by_[v][0];
}

Value Graph::root(Value v) const {
  while (viewed_[v] >= 0) v = viewed_[v];
  return v;
}

std::vector<Value> Graph::shown_of(Value state) const {
  std::vector<Value> shown = {state};
  for (size_t k = 0; k < shown.size(); ++k) {
    for (const int reader : read_by_[shown[k]]) {
      const OpDef& op = op_named(call(reader).op);
      if (op.view || op.lies == LiesWithin::kJoins) shown.push_back(call(reader).outputs[0]);
    }
  }
  return shown;
}

std::vector<int> Graph::readers_of_state(Value state) const {
  std::vector<int> found;
  for (const Value v : shown_of(state)) {
    found.insert(found.end(), read_by_[v].begin(), read_by_[v].end());
  }
  return found;
}

Before::Before(const Graph& graph, const std::vector<int>& some)
    : words_((some.size() + 63) / 64), bits_(graph.num_calls() * words_, 0) {
  std::map<int, size_t> bit_of;
  for (size_t k = 0; k < some.size(); ++k) bit_of[some[k]] = k;
  for (int m = 0; m < graph.num_calls(); ++m) {
    uint64_t* mine = bits_.data() + m * words_;
    for (const std::vector<Value>* values : {&graph.call(m).inputs, &graph.call(m).after}) {
      for (const Value v : *values) {
        const int maker = graph.maker(v);
        if (maker < 0) continue;
        for (size_t w = 0; w < words_; ++w) mine[w] |= bits_[maker * words_ + w];
        const auto bit = bit_of.find(maker);
        if (bit != bit_of.end()) mine[bit->second / 64] |= uint64_t{1} << bit->second % 64;
      }
    }
  }
}

bool may_join(const Scheme& scheme, const Morphism& a, const Morphism& b, Recomputed recomputed) {
  const bool repeats = recomputed == Recomputed::kMayJoin && a.epoch > 0 && b.epoch == 0;
  if (a.section != b.section || (a.epoch != b.epoch && !repeats)) return false;
  const Attributes &here = scheme[a.outputs[0]].attributes,
                   &there = scheme[b.outputs[0]].attributes;
  return here.tier == there.tier && here.stage == there.stage && here.placement == there.placement;
}

}  // namespace adjoint
