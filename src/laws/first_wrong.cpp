// The node at which a law is first broken: the broken step, the step without the functor and the
// judge's, node by node in the order of the step.
#include <algorithm>
#include <cmath>

#include "laws/judge.h"

namespace adjoint {

namespace {

constexpr double kNodeFloor = 0x1p-20;  // one object has fewer elements to average over

// The nearest of the nodes that may be the same object in another stack: of the same source and
// shape, or with another share of the batch.
std::optional<double> distance(const Node& node, const std::vector<const Node*>& others) {
  std::optional<double> nearest;
  for (const Node* other : others) {
    Numbers a = node.numbers, b = other->numbers;
    if (node.sizes != other->sizes) {
      const bool parts =
          node.sizes.size() == other->sizes.size() && !node.sizes.empty() &&
          std::equal(node.sizes.begin() + 1, node.sizes.end(), other->sizes.begin() + 1);
      if (!parts) continue;
    } else if (a.size() != b.size()) {  // iterations of a sum: the last one has it all
      const size_t size = std::min(a.size(), b.size());
      a.erase(a.begin(), a.end() - static_cast<int64_t>(size));
      b.erase(b.begin(), b.end() - static_cast<int64_t>(size));
    }
    const size_t size = std::min(a.size(), b.size());
    a.resize(size), b.resize(size);
    double error = same_bits(a, b) ? 0 : relative_error(a, b);
    if (error == 0 && !same_bits(a, b)) error = 0x1p-60;  // -0 for 0
    nearest = std::min(nearest.value_or(INFINITY), error);
  }
  return nearest;
}

using NodesBySource = std::map<std::string, std::vector<const Node*>>;
NodesBySource by_source(const Trace& trace) {
  NodesBySource nodes;
  for (const Node& node : trace.nodes) nodes[node.source].push_back(&node);
  return nodes;
}
std::optional<double> distance(const Node& node, const NodesBySource& others) {
  const auto found = others.find(node.source);
  if (found == others.end()) return std::nullopt;
  return distance(node, found->second);
}

}  // namespace

Trace Judge::node_trace(const Stack& stack, Kind kind, const Verdict& verdict,
                        const Trace* replayed) {
  return trace_run(scheme_for(stack, kind), ranges_,
                   {.seed = verdict.seed,
                    .steps = verdict.step + 1,
                    .reference = kind != Kind::kRun,
                    .target = subject_.target,
                    .replayed = replayed,
                    .nodes_of = verdict.step,
                    .counted = subject_.counted});
}

std::optional<WrongNode> Judge::first_wrong(const Stack& stack, size_t index,
                                            const Verdict& verdict) {
  const Stack rest = compared_with(stack, index);
  const Trace run = node_trace(stack, Kind::kRun, verdict, nullptr);
  std::optional<Trace> plain, judge;
  try {
    plain = node_trace(rest, Kind::kRun, verdict, nullptr);
  } catch (const Error&) {  // it cannot be left out alone
  }
  if (verdict.law != Law::kExact) {
    const bool own = verdict.law == Law::kApproximating || !plain;
    judge =
        node_trace(own ? stack : rest, own ? Kind::kReference : Kind::kUnrounded, verdict, &run);
  }
  if (!plain && !judge) return std::nullopt;
  const NodesBySource plain_nodes = plain ? by_source(*plain) : NodesBySource{};
  const NodesBySource judge_nodes = judge ? by_source(*judge) : plain_nodes;
  for (const Node& node : run.nodes) {
    const std::optional<double> error = distance(node, judge_nodes);
    if (!error) continue;
    double allowed = 0;
    if (judge) {
      // How far the stack without the functor is from the judge here; where a rounding may fall the
      // other way, what the law allows to tensors.
      double base = kNodeFloor;
      if (const auto found = plain_nodes.find(node.source); found != plain_nodes.end()) {
        for (const Node* other : found->second) {
          const std::optional<double> off = distance(*other, judge_nodes);
          if (off && std::isfinite(*off)) base = std::max(base, *off);
        }
      }
      allowed = kAllowedTimes * base;
      if (has_narrow(built(stack).scheme)) allowed = std::max(allowed, verdict.allowed);
    }
    if (!(*error <= allowed)) return WrongNode{node.source, node.op, *error};
  }
  return std::nullopt;
}

}  // namespace adjoint
