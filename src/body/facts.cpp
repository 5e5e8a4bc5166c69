#include "body/facts.h"

#include <algorithm>

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

bool vanishes_at_zero(const Body& body) {
  return vanishes_where(body, std::vector<bool>(body.num_inputs(), true));
}

bool vanishes_where(const Body& body, const std::vector<bool>& operands) {
  Body zeros;
  std::vector<int> now;  // per node
  const auto is_zero = [&](int node) {
    return zeros.nodes[node].kind == ExprKind::kConst && zeros.nodes[node].value == 0;
  };
  for (ExprNode node : body.nodes) {
    for (int a = 0; a < facts(node.kind).arity; ++a) node.args[a] = now[node.args[a]];
    const bool of_row = node.kind == ExprKind::kRowSum || node.kind == ExprKind::kRowMax ||
                        node.kind == ExprKind::kRotate;
    const bool zero = (node.kind == ExprKind::kInput && operands[node.index]) ||
                      (of_row && is_zero(node.args[0]));
    now.push_back(zeros.add(zero ? ExprNode{} : node));
  }
  return std::all_of(body.outputs.begin(), body.outputs.end(),
                     [&](const BodyOutput& o) { return is_zero(now[o.node]); });
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
