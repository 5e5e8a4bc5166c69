#include "functors/fuse_order.h"

#include <algorithm>

#include "ops/op_def.h"

namespace adjoint {

namespace {

// Adds to `late` a call that fuses with nothing, and who reads it too early, to move to a place
// between two others, where they keep their order. False: one of them cannot wait.
bool delay(const Groups& groups, int call, int at, std::vector<int>& late) {
  const Graph& graph = groups.graph();
  if (groups.place_of(call) > at || std::count(late.begin(), late.end(), call)) return true;
  const Morphism& m = graph.call(call);
  if (groups.is_fusible(call) || op_named(m.op).effect != Effect::kPure) return false;
  late.push_back(call);
  for (const int waits : graph.holds(call)) {
    if (groups.place_of(waits) <= at) return false;
  }
  for (const Value out : m.outputs) {
    for (const int reader : graph.readers(out)) {
      if (!delay(groups, reader, at, late)) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<std::vector<int>> late_readers(const Groups& groups, int a, int c, int at) {
  const Graph& graph = groups.graph();
  const auto is_inside = [&](int m) {
    const int group = groups.group_of(m);
    return group == a || group == c;
  };
  const auto is_earlier = [&](int m) { return m < 0 || is_inside(m) || groups.place_of(m) < at; };
  const auto is_later = [&](int m) { return is_inside(m) || groups.place_of(m) > at; };
  std::vector<int> late;
  for (const int group : {a, c}) {
    const Group& g = groups[group];
    for (const Value in : g.inputs) {
      if (!is_earlier(graph.maker(in))) return std::nullopt;
    }
    for (const Value out : g.outputs) {
      for (const int reader : graph.readers(out)) {
        if (!is_later(reader) && !delay(groups, reader, at + 1, late)) return std::nullopt;
      }
    }
    for (const int m : g.members) {
      const std::vector<int>&before = graph.held_by(m), &after = graph.holds(m);
      if (!std::all_of(before.begin(), before.end(), is_earlier)) return std::nullopt;
      if (!std::all_of(after.begin(), after.end(), is_later)) return std::nullopt;
    }
  }
  return late;
}

}  // namespace adjoint
