#include "functors/joined_update.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "body/join.h"

namespace adjoint {

namespace {

std::optional<double> constant_of(const Body& body, int node) {
  if (body.nodes[node].kind != ExprKind::kConst) return std::nullopt;
  return body.nodes[node].value;
}

// c - c * e^u loses the digits of what it should be where e^u is near 1, as 1 - beta^step does for
// the first steps. It is -c * tanh(u/2) * (1 + e^u), which loses none.
std::optional<int> without_cancelling(Body& body, const ExprNode& sum) {
  if (sum.kind != ExprKind::kAdd) return std::nullopt;
  for (const int k : {0, 1}) {
    const auto c = constant_of(body, sum.args[k]);
    int power = sum.args[1 - k];
    double factor = 1;
    while (c && body.nodes[power].kind == ExprKind::kMul) {
      const auto& args = body.nodes[power].args;
      const auto a = constant_of(body, args[0]), b = constant_of(body, args[1]);
      if (!a && !b) break;
      factor *= a ? *a : *b;
      power = a ? args[1] : args[0];
    }
    if (!c || *c == 0 || body.nodes[power].kind != ExprKind::kExp || factor != -*c) continue;
    const Expr e{&body, power}, u{&body, body.nodes[power].args[0]};
    return (tanh(u * 0.5) * (e + 1.0) * factor).node;
  }
  return std::nullopt;
}

class Joiner {
 public:
  Joiner(Builder& builder, const JoinedUpdate& update)
      : builder_(builder),
        step_(builder.scheme()),
        update_(update),
        piece_(update.piece),
        made_by_(producers(update.piece)),
        known_(update.piece.objects.size(), -1) {
    for (size_t i = 0; i < update.given.size(); ++i) known_[piece_.inputs[i]] = update.given[i];
  }

  // Results of one shape are one call. A larger one may read the state that a smaller one
  // overwrites, and never the other way around, so larger ones come first.
  void emit() {
    std::vector<std::vector<size_t>> groups;
    std::set<Value> seen;
    std::vector<Value> unused;
    for (size_t i = 0; i < update_.carried.size(); ++i) {
      find_leaves(update_.carried[i].after, unused, seen);
      // With the labels of their axes, too: only then may a result overwrite an operand.
      const auto alike = [&](const std::vector<size_t>& group) {
        return step_[update_.carried[i].before].type ==
               step_[update_.carried[group[0]].before].type;
      };
      const auto group = std::find_if(groups.begin(), groups.end(), alike);
      if (group == groups.end()) {
        groups.push_back({i});
      } else {
        group->push_back(i);
      }
    }
    const auto size = [&](const std::vector<size_t>& group) {
      const Type& type = step_[update_.carried[group[0]].before].type;
      return std::pair(type.num_elements(), type.rank());
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const auto& a, const auto& b) { return size(a) > size(b); });
    for (const std::vector<size_t>& group : groups) emit_group(group);
  }

 private:
  // Made element by element of what it reads, in float32.
  bool is_lazy(Value v) const {
    if (made_by_[v] < 0 || known_[v] >= 0 || piece_[v].type.dtype != Dtype::kF32) return false;
    const Morphism& m = piece_.morphisms[made_by_[v]];
    if (!is_row_op(op_named(m.op)) || m.outputs.size() != 1) return false;
    const Body body = body_of(call_of(piece_, m));
    const BodyOutput& out = body.outputs[0];
    return out.summed_axes == 0 && out.row == BodyOutput::Row::kWhole && !body.needs_whole_rows() &&
           std::none_of(body.nodes.begin(), body.nodes.end(), [](const ExprNode& n) {
             return n.kind == ExprKind::kIndex || n.kind == ExprKind::kRandom;
           });
  }

  // What an expression of v reads; makes what is no expression.
  void find_leaves(Value v, std::vector<Value>& leaves, std::set<Value>& seen) {
    if (!seen.insert(v).second) return;
    if (is_lazy(v)) {
      for (const Value in : piece_.morphisms[made_by_[v]].inputs) find_leaves(in, leaves, seen);
      return;
    }
    make(v);
    leaves.push_back(v);
  }

  Builder& at(const std::string& facet, Role role) {
    return builder_.at({update_.path, facet}, Phase::kUpdate, role);
  }

  // An object of the step that is v.
  Value make(Value v) {
    if (known_[v] >= 0) return known_[v];
    const Morphism& m = piece_.morphisms[made_by_[v]];
    const std::string facet = update_.prefix + "." + piece_[v].source.path;
    if (is_lazy(v)) {
      std::vector<Value> leaves;
      std::set<Value> seen;
      find_leaves(v, leaves, seen);
      at(facet, Role::kMetric);
      return known_[v] = emit_map({v}, leaves, /*guarded=*/{}).front();
    }
    std::vector<Value> inputs;
    for (const Value in : m.inputs) inputs.push_back(make(in));
    at(facet, Role::kMetric);
    const std::vector<Value> made = builder_.emit_all(m.op, std::move(inputs), m.attrs);
    for (size_t k = 0; k < made.size(); ++k) {
      known_[m.outputs[k]] = made[k];
      step_[made[k]].source = {update_.path,
                               update_.prefix + "." + piece_[m.outputs[k]].source.path};
    }
    return known_[v];
  }

  int node_of(Body& body, Value v, const std::map<Value, int>& operands,
              std::map<Value, int>& nodes) {
    if (const auto found = nodes.find(v); found != nodes.end()) return found->second;
    if (const auto leaf = operands.find(v); leaf != operands.end()) {
      return nodes[v] = input(body, leaf->second).node;
    }
    const Morphism& m = piece_.morphisms[made_by_[v]];
    const Body own = body_of(call_of(piece_, m));
    std::vector<int> renamed;
    for (ExprNode n : own.nodes) {
      if (n.kind == ExprKind::kInput) {
        renamed.push_back(node_of(body, m.inputs[n.index], operands, nodes));
        continue;
      }
      for (int a = 0; a < facts(n.kind).arity; ++a) n.args[a] = renamed[n.args[a]];
      const auto steady = without_cancelling(body, n);
      renamed.push_back(steady ? *steady : body.add(std::move(n)));
    }
    return nodes[v] = renamed[own.outputs[0].node];
  }

  // One map that gives all of `wanted`, which have one shape. `guarded`: what each of them stays
  // when the step is not to be taken.
  std::vector<Value> emit_map(const std::vector<Value>& wanted, std::vector<Value> leaves,
                              const std::vector<Value>& guarded) {
    // Numbers that all updates share come last: that is how gang_updates knows them.
    std::stable_partition(leaves.begin(), leaves.end(),
                          [&](Value v) { return piece_[v].type.rank() > 0; });
    std::map<Value, int> operands, nodes;
    std::vector<Value> inputs;
    const auto operand = [&](Value object) {
      const auto at = std::find(inputs.begin(), inputs.end(), object) - inputs.begin();
      if (at == std::ssize(inputs)) inputs.push_back(object);
      return static_cast<int>(at);
    };
    std::vector<int> before;
    for (const Value object : guarded) before.push_back(operand(object));
    for (const Value leaf : leaves) operands[leaf] = operand(known_[leaf]);
    Body body;
    const Expr ok = guarded.empty() ? Expr{} : input(body, operand(update_.ok));
    std::vector<Type> types, results;
    for (size_t k = 0; k < wanted.size(); ++k) {
      Expr next{&body, node_of(body, wanted[k], operands, nodes)};
      if (!guarded.empty()) next = select(ok, next, input(body, before[k]));
      body.outputs.push_back({.node = next.node});
      results.push_back(with_dtype(piece_[wanted[k]].type, Dtype::kF32));
    }
    for (const Value object : inputs) types.push_back(step_[object].type);
    const std::vector<Axis> space =
        guarded.empty() ? piece_[wanted[0]].type.axes : step_[guarded[0]].type.axes;
    const MapCall call = map_call(std::move(body), space, types, results);
    std::vector<Value> used;
    for (const int i : call.operands) used.push_back(inputs[i]);
    return builder_.emit_all("map", std::move(used), call.attrs);
  }

  void emit_group(const std::vector<size_t>& group) {
    std::vector<Value> wanted, before, leaves;
    std::set<Value> seen;
    for (const size_t i : group) {
      wanted.push_back(update_.carried[i].after);
      before.push_back(update_.carried[i].before);
      find_leaves(update_.carried[i].after, leaves, seen);
    }
    builder_.at(step_[before[0]].source, Phase::kUpdate, Role::kState);
    const std::vector<Value> after = emit_map(wanted, leaves, before);
    for (size_t k = 0; k < after.size(); ++k) {
      step_[after[k]].source = step_[before[k]].source;
      step_[after[k]].role = step_[before[k]].role;
      step_[after[k]].type = step_[before[k]].type;
      step_.carries.push_back({before[k], after[k]});
    }
  }

  Builder& builder_;
  Scheme& step_;
  const JoinedUpdate& update_;
  const Scheme& piece_;
  std::vector<int> made_by_;
  std::vector<Value> known_;  // per object of the piece: the step's, or -1
};

}  // namespace

void emit_joined(Builder& builder, const JoinedUpdate& update) { Joiner(builder, update).emit(); }

}  // namespace adjoint
