#include "body/facts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace adjoint {

bool is_elementwise(const Body& body) {
  return body.outputs.size() == 1 && body.outputs[0] == BodyOutput{.node = body.outputs[0].node} &&
         !body.needs_whole_rows() &&
         std::none_of(body.nodes.begin(), body.nodes.end(), [](const ExprNode& n) {
           return n.kind == ExprKind::kIndex || n.kind == ExprKind::kRandom;
         });
}

bool makes_single_numbers(const Body& body) {
  return std::all_of(body.outputs.begin(), body.outputs.end(),
                     [](const BodyOutput& o) { return o.row == BodyOutput::Row::kDropped; }) &&
         std::none_of(body.nodes.begin(), body.nodes.end(),
                      [](const ExprNode& n) { return n.kind == ExprKind::kRandom; });
}

bool adds_elements(const Body& body) {
  const auto is_sum_of_row = [&](int node) { return body.nodes[node].kind == ExprKind::kRowSum; };
  const auto knows_others = [&](const ExprNode& n) {
    bool reads_a_sum = false;
    for (int a = 0; a < facts(n.kind).arity; ++a) {
      reads_a_sum = reads_a_sum || is_sum_of_row(n.args[a]);
    }
    return reads_a_sum || n.kind == ExprKind::kRowMax || n.kind == ExprKind::kRotate ||
           n.kind == ExprKind::kIndex;
  };
  return makes_single_numbers(body) &&
         std::none_of(body.nodes.begin(), body.nodes.end(), knows_others) &&
         std::all_of(body.outputs.begin(), body.outputs.end(),
                     [&](const BodyOutput& o) { return is_sum_of_row(o.node); });
}

namespace {

// A node of what its operands are; `other` is what an operand, a position or a random number is.
double number_at(const ExprNode& node, const double* x, double other) {
  switch (node.kind) {
    case ExprKind::kInput:
    case ExprKind::kIndex:
      return other;
    case ExprKind::kRandom:
      return 0.5;
    case ExprKind::kConst:
      return node.value;
    case ExprKind::kAdd:
      return x[0] + x[1];
    case ExprKind::kSub:
      return x[0] - x[1];
    case ExprKind::kMul:
      return x[0] * x[1];
    case ExprKind::kDiv:
      return x[0] / x[1];
    case ExprKind::kMin:
      return std::min(x[0], x[1]);
    case ExprKind::kMax:
      return std::max(x[0], x[1]);
    case ExprKind::kLess:
      return x[0] < x[1];
    case ExprKind::kEqual:
      return x[0] == x[1];
    case ExprKind::kNeg:
      return -x[0];
    case ExprKind::kExp:
      return std::exp(x[0]);
    case ExprKind::kLog:
      return std::log(x[0]);
    case ExprKind::kSqrt:
      return std::sqrt(x[0]);
    case ExprKind::kTanh:
      return std::tanh(x[0]);
    case ExprKind::kSigmoid:
      return 1 / (1 + std::exp(-x[0]));
    case ExprKind::kErf:
      return std::erf(x[0]);
    case ExprKind::kSin:
      return std::sin(x[0]);
    case ExprKind::kCos:
      return std::cos(x[0]);
    case ExprKind::kFinite:
      return std::isfinite(x[0]);
    case ExprKind::kWhole:
      return std::nearbyint(x[0]);
    case ExprKind::kSelect:
      return x[0] != 0 ? x[1] : x[2];
    case ExprKind::kRound:
    case ExprKind::kRowSum:
    case ExprKind::kRowMax:
    case ExprKind::kRotate:
      return x[0];
  }
  return other;
}

}  // namespace

bool vanishes_at_zero(const Body& body) {
  return vanishes_where(body, std::vector<bool>(body.num_inputs(), true));
}

// By numbers, because 0 times what is not finite is not 0: the other operands are a few numbers
// above 0 that have nothing in common.
bool vanishes_where(const Body& body, const std::vector<bool>& operands) {
  constexpr double kOthers[] = {0.7310585786, 1.3132616875, 2.2689414214};
  for (const double other : kOthers) {
    std::vector<double> now;  // per node
    for (const ExprNode& node : body.nodes) {
      double x[3] = {};
      for (int a = 0; a < facts(node.kind).arity; ++a) x[a] = now[node.args[a]];
      const bool zero = node.kind == ExprKind::kInput && operands[node.index];
      now.push_back(zero ? 0 : number_at(node, x, other));
    }
    for (const BodyOutput& out : body.outputs) {
      if (now[out.node] != 0) return false;
    }
  }
  return true;
}

std::vector<std::vector<double>> results_of_row(const Body& body,
                                                const std::vector<std::vector<double>>& operands) {
  size_t width = 1;
  for (const std::vector<double>& operand : operands) width = std::max(width, operand.size());
  std::vector<std::vector<double>> now;  // per node
  for (const ExprNode& node : body.nodes) {
    std::vector<double> row(width);
    const std::vector<double>* of = facts(node.kind).arity > 0 ? &now[node.args[0]] : nullptr;
    if (node.kind == ExprKind::kRowSum) {
      row.assign(width, std::accumulate(of->begin(), of->end(), 0.0));
    } else if (node.kind == ExprKind::kRowMax) {
      row.assign(width, *std::max_element(of->begin(), of->end()));
    } else {
      for (size_t j = 0; j < width; ++j) {
        double x[3] = {};
        for (int a = 0; a < facts(node.kind).arity; ++a) x[a] = now[node.args[a]][j];
        if (node.kind == ExprKind::kInput) {
          const std::vector<double>& operand = operands[node.index];
          row[j] = operand[operand.size() == 1 ? 0 : j];
        } else if (node.kind == ExprKind::kRotate) {
          const size_t half = width / 2;
          row[j] = j < half ? -(*of)[j + half] : (*of)[j - half];
        } else {
          row[j] = number_at(node, x, static_cast<double>(j));
        }
      }
    }
    now.push_back(std::move(row));
  }
  std::vector<std::vector<double>> results;
  for (const BodyOutput& out : body.outputs) results.push_back(now[out.node]);
  return results;
}

bool runs_in_units(const Body& body) {
  return std::none_of(body.outputs.begin(), body.outputs.end(), is_sum) &&
         std::none_of(body.nodes.begin(), body.nodes.end(),
                      [](const ExprNode& n) { return n.kind == ExprKind::kRandom; });
}

std::optional<int> passed_on(const Body& body, const BodyOutput& out) {
  const ExprNode& n = body.nodes[out.node];
  if (n.kind != ExprKind::kInput || out.summed_axes > 0) return std::nullopt;
  return out.row == BodyOutput::Row::kWhole ? std::optional(n.index) : std::nullopt;
}

bool is_cast(const Body& body) {
  return body.outputs.size() == 1 && body.num_inputs() == 1 &&
         passed_on(body, body.outputs[0]) == 0;
}

bool adds_operands(const Body& body) {
  if (body.outputs.size() != 1 || body.num_inputs() != 2 || is_sum(body.outputs[0])) return false;
  const ExprNode& sum = body.nodes[body.outputs[0].node];
  if (sum.kind != ExprKind::kAdd || body.outputs[0].row != BodyOutput::Row::kWhole) return false;
  const ExprNode &a = body.nodes[sum.args[0]], &b = body.nodes[sum.args[1]];
  return a.kind == ExprKind::kInput && b.kind == ExprKind::kInput && a.index != b.index;
}

bool is_sum(const BodyOutput& out) {
  return out.summed_axes > 0 || out.row == BodyOutput::Row::kDropped;
}

Strides stretch(const Strides& strides, const Type& type, const std::vector<Axis>& space) {
  Strides result(space.size(), 0);
  for (size_t back = 1; back <= strides.size() && back <= space.size(); ++back) {
    const Axis& axis = type.axes[type.axes.size() - back];
    if (axis.size > 1) result[space.size() - back] = strides[strides.size() - back];
  }
  return result;
}

Strides stretch_output(const Strides& strides, const BodyOutput& output, size_t space_rank) {
  Strides result(space_rank, 0);
  if (output.row == BodyOutput::Row::kDropped) return result;
  for (size_t i = 0; i < strides.size(); ++i) result[i + output.summed_axes] = strides[i];
  if (output.row == BodyOutput::Row::kOne && space_rank > 0) result.back() = 0;
  return result;
}

}  // namespace adjoint
