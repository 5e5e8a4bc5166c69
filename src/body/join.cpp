#include "body/join.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace adjoint {

namespace {

// Nodes by content: finds an equal node in constant time, and folds nothing.
class Nodes {
 public:
  explicit Nodes(Body& body) : body_(body) {
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      by_content_.emplace(content(body.nodes[i]), static_cast<int>(i));
    }
  }

  int add(ExprNode node) {
    const auto [found, is_new] =
        by_content_.emplace(content(node), static_cast<int>(body_.nodes.size()));
    if (is_new) body_.nodes.push_back(std::move(node));
    return found->second;
  }

 private:
  static std::string content(const ExprNode& n) {
    std::string key(1, static_cast<char>(n.kind));
    const auto append = [&](const void* bytes, size_t count) {
      key.append(static_cast<const char*>(bytes), count);
    };
    append(n.args.data(), sizeof n.args);
    append(&n.value, sizeof n.value);  // by its bits, because 0 is not -0
    append(&n.index, sizeof n.index);
    return key + n.text;
  }

  Body& body_;
  std::unordered_map<std::string, int> by_content_;
};

bool reads_operand(const ExprNode& n) {
  return n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom;
}

}  // namespace

Body join(const Body& first, const Body& second, std::span<const JoinOperand> operands) {
  Body joined = first;
  Nodes nodes(joined);
  const auto made = [&](const JoinOperand& operand) {
    const int node = first.outputs[operand.number].node;
    if (operand.dtype == Dtype::kF32) return node;  // registers are float32
    CHECK(operand.dtype == Dtype::kBF16 || operand.dtype == Dtype::kF16,
          "a register can be rounded to what lies between two bodies");
    const ExprNode& n = joined.nodes[node];
    const int dtype = static_cast<int>(operand.dtype);
    if (n.kind == ExprKind::kRound && n.index == dtype) return node;
    return nodes.add({.kind = ExprKind::kRound, .args = {node, -1, -1}, .index = dtype});
  };
  std::vector<int> renamed;
  for (ExprNode n : second.nodes) {
    for (int a = 0; a < facts(n.kind).arity; ++a) n.args[a] = renamed[n.args[a]];
    if (reads_operand(n)) {
      const JoinOperand& operand = operands[n.index];
      if (operand.made) {
        CHECK(n.kind == ExprKind::kInput, "no body makes a random counter");
        renamed.push_back(made(operand));
        continue;
      }
      n.index = operand.number;
    }
    renamed.push_back(nodes.add(std::move(n)));
  }
  for (BodyOutput out : second.outputs) {
    out.node = renamed[out.node];
    joined.outputs.push_back(out);
  }
  return joined;
}

namespace {

// The constant that the node evaluates to, if float32 and float64 arithmetic agree on it.
std::optional<double> agreed_constant(const Body& body, const ExprNode& n) {
  double v[2] = {0, 0};
  const int arity = facts(n.kind).arity;
  if (arity < 1 || arity > 2) return std::nullopt;
  for (int a = 0; a < arity; ++a) {
    const ExprNode& arg = body.nodes[n.args[a]];
    if (arg.kind != ExprKind::kConst || static_cast<float>(arg.value) != arg.value) {
      return std::nullopt;
    }
    v[a] = arg.value;
  }
  double result = 0;
  switch (n.kind) {
    case ExprKind::kAdd:
      result = v[0] + v[1];
      break;
    case ExprKind::kSub:
      result = v[0] - v[1];
      break;
    case ExprKind::kMul:
      result = v[0] * v[1];
      break;
    case ExprKind::kDiv:
      result = v[0] / v[1];
      break;
    case ExprKind::kSqrt:
      result = std::sqrt(v[0]);
      break;
    case ExprKind::kNeg:
      result = -v[0];
      break;
    case ExprKind::kMin:
      result = v[1] < v[0] ? v[1] : v[0];
      break;
    case ExprKind::kMax:
      result = v[0] < v[1] ? v[1] : v[0];
      break;
    case ExprKind::kLess:
      result = v[0] < v[1];
      break;
    case ExprKind::kEqual:
      result = v[0] == v[1];
      break;
    default:
      return std::nullopt;
  }
  // A result that float32 holds is the float32 result too: both are the exact one, rounded once.
  if (!std::isfinite(result) || static_cast<float>(result) != result) return std::nullopt;
  return result;
}

// The operand that the node equals, bit for bit.
std::optional<int> equal_operand(const Body& body, const ExprNode& n) {
  const auto is = [&](int a, double value) {
    const ExprNode& arg = body.nodes[n.args[a]];
    return arg.kind == ExprKind::kConst &&
           std::bit_cast<uint64_t>(arg.value) == std::bit_cast<uint64_t>(value);
  };
  switch (n.kind) {
    case ExprKind::kMul:
      if (is(0, 1.0)) return n.args[1];
      if (is(1, 1.0)) return n.args[0];
      break;
    case ExprKind::kDiv:
      if (is(1, 1.0)) return n.args[0];
      break;
    case ExprKind::kAdd:
      if (is(0, -0.0)) return n.args[1];
      if (is(1, -0.0)) return n.args[0];
      break;
    case ExprKind::kSub:
      if (is(1, 0.0)) return n.args[0];
      break;
    case ExprKind::kNeg:
      if (body.nodes[n.args[0]].kind == ExprKind::kNeg) return body.nodes[n.args[0]].args[0];
      break;
    case ExprKind::kSelect: {
      if (n.args[1] == n.args[2]) return n.args[1];
      const ExprNode& condition = body.nodes[n.args[0]];
      if (condition.kind == ExprKind::kConst &&
          static_cast<float>(condition.value) == condition.value) {
        return n.args[condition.value != 0 ? 1 : 2];
      }
      break;
    }
    case ExprKind::kRound:
      if (body.nodes[n.args[0]].kind == ExprKind::kRound &&
          body.nodes[n.args[0]].index == n.index) {
        return n.args[0];
      }
      break;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace

Body fold_exactly(const Body& body) {
  Body folded;
  Nodes nodes(folded);
  std::vector<int> renamed;
  for (ExprNode n : body.nodes) {
    for (int a = 0; a < facts(n.kind).arity; ++a) n.args[a] = renamed[n.args[a]];
    if (const auto same = equal_operand(folded, n)) {
      renamed.push_back(*same);
      continue;
    }
    if (const auto value = agreed_constant(folded, n)) n = {.value = *value};
    renamed.push_back(nodes.add(std::move(n)));
  }
  for (BodyOutput out : body.outputs) {
    out.node = renamed[out.node];
    folded.outputs.push_back(out);
  }
  return without_dead_nodes(folded);
}

bool same_sizes(const std::vector<Axis>& a, const std::vector<Axis>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Axis& x, const Axis& y) { return x.size == y.size; });
}

MapCall map_call(Body body, const std::vector<Axis>& space, const std::vector<Type>& inputs,
                 const std::vector<Type>& outputs) {
  body = without_dead_nodes(body);
  MapCall call{.operands = drop_unused_inputs(body), .attrs = {}};
  std::vector<Type> types;
  for (const int operand : call.operands) types.push_back(inputs[operand]);
  if (!same_sizes(broadcast("map", types), space)) {
    std::vector<int64_t> sizes;
    for (const Axis& axis : space) sizes.push_back(axis.size);
    call.attrs["shape"] = sizes;
  }
  for (BodyOutput& out : body.outputs) out.dtype = std::nullopt;
  const std::vector<Type> implied = output_types(body, space, types);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (implied[k].dtype != outputs[k].dtype) body.outputs[k].dtype = outputs[k].dtype;
  }
  call.attrs["body"] = print(body);
  return call;
}

std::vector<bool> same_along_row(const Body& body, const std::vector<Axis>& space,
                                 const std::vector<Type>& inputs) {
  const bool long_row = !space.empty() && space.back().size > 1;
  std::vector<bool> same;
  for (const ExprNode& n : body.nodes) {
    bool all = true;
    for (int a = 0; a < facts(n.kind).arity; ++a) all = all && same[n.args[a]];
    switch (n.kind) {
      case ExprKind::kInput:
        all = inputs[n.index].rank() == 0 || inputs[n.index].dim(-1) == 1;
        break;
      case ExprKind::kIndex:
        all = n.index > 0;
        break;
      case ExprKind::kRandom:
      case ExprKind::kRotate:
        all = false;
        break;
      case ExprKind::kRowSum:
      case ExprKind::kRowMax:
        all = true;
        break;
      default:
        break;
    }
    same.push_back(all || !long_row);
  }
  return same;
}

}  // namespace adjoint
