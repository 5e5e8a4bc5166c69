#include "analysis/pattern.h"

#include <algorithm>
#include <set>

namespace adjoint {

Pattern::Pattern(Is call) : is(std::move(call)) {}
Pattern::Pattern(Is call, std::vector<Operand> made_of)
    : is(std::move(call)), operands(std::move(made_of)) {}

namespace {

// The call that makes v, or one behind calls that make no difference; `seen` are objects that were
// looked at.
std::optional<Match> match_maker(const Graph& graph, const Pattern::Operand& operand, Value v,
                                 std::set<Value>& seen) {
  const int maker = graph.maker(v);
  if (maker < 0 || !seen.insert(v).second) return std::nullopt;
  if (operand.only && !graph.only_reader(v)) return std::nullopt;
  const Morphism& m = graph.call(maker);
  const size_t result = operand.result;
  if (result < m.outputs.size() && m.outputs[result] == v) {
    if (auto found = match(graph, operand.made_by, maker)) return found;
  }
  if (!operand.through || !operand.through(graph, m)) return std::nullopt;
  for (const Value in : m.inputs) {
    if (auto found = match_maker(graph, operand, in, seen)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Match> match(const Graph& graph, const Pattern& pattern, int call) {
  const Morphism& m = graph.call(call);
  if (!pattern.is(graph, m)) return std::nullopt;
  Match calls = {call};
  std::set<size_t> taken;  // operands of the call
  for (const Pattern::Operand& operand : pattern.operands) {
    std::optional<Match> found;
    for (size_t k = 0; k < m.inputs.size() && !found; ++k) {
      const Value v = m.inputs[k];
      if (taken.count(k) || (operand.only && std::count(m.inputs.begin(), m.inputs.end(), v) > 1)) {
        continue;
      }
      std::set<Value> seen;
      found = match_maker(graph, operand, v, seen);
      // Asked last: it may look at the whole body of a call with hundreds of operands.
      if (found && operand.fits && !operand.fits(graph, m, v)) found.reset();
      if (found) taken.insert(k);
    }
    if (!found) return std::nullopt;
    calls.insert(calls.end(), found->begin(), found->end());
  }
  return calls;
}

std::vector<Match> find_joins(const Graph& graph, const Pattern& pattern) {
  std::vector<Match> all;
  std::set<int> taken;
  for (int m = 0; m < graph.num_calls(); ++m) {
    auto found = match(graph, pattern, m);
    if (!found) continue;
    const auto is_free = [&](int call) {
      return !taken.count(call) && may_join(graph.scheme(), graph.call(call), graph.call(m));
    };
    if (!std::all_of(found->begin(), found->end(), is_free)) continue;
    taken.insert(found->begin(), found->end());
    all.push_back(*std::move(found));
  }
  return all;
}

}  // namespace adjoint
