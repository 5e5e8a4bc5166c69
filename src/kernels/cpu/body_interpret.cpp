// The interpreter of a body: one vectorized loop per node, over values in slots.
#include <cstring>

#include "base/philox.h"
#include "body/facts.h"
#include "kernels/cpu/body_loops.h"
#include "kernels/cpu/body_program.h"
#include "scheme/elements.h"

namespace adjoint {

using Span = std::pair<const std::byte*, const std::byte*>;
static Span span_of(const void* data, Dtype dtype, const Strides& strides,
                    const std::vector<int64_t>& dims) {
  const auto* begin = static_cast<const std::byte*>(data);
  int64_t furthest = 0;
  for (size_t a = 0; a < dims.size(); ++a) furthest += (dims[a] - 1) * strides[a];
  return {begin, begin + (furthest + 1) * size_of(dtype).count};
}

// Generated code supports operands and results that coincide or are disjoint, but no partial
// overlap.
bool BodyProgram::shares_whole_rows() const {
  for (size_t k = 0; k < layout.out.size(); ++k) {
    if (is_sum(layout.body.outputs[k])) continue;
    const auto to = span_of(at.out[k], out_types[k].dtype, layout.out[k], layout.dims);
    for (const ExprNode& n : layout.body.nodes) {
      if (n.kind != ExprKind::kInput) continue;
      const Dtype dtype = in_types[n.index].dtype;
      const auto from = span_of(at.in[n.index], dtype, layout.in[n.index], layout.dims);
      if (from.first >= to.second || to.first >= from.second) continue;
      const bool same =
          from == to && layout.in[n.index] == layout.out[k] && dtype == out_types[k].dtype;
      if (!same) return false;
    }
  }
  return true;
}

// A dense float32 result is written directly by the instruction that makes it, if no operand shares
// its bytes, or that operand has no later reader.
void BodyProgram::find_direct() {
  const Body& body = layout.body;
  std::vector<int> last(body.nodes.size(), -1);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    last[i] = static_cast<int>(i);
    for (int a = 0; a < facts(body.nodes[i].kind).arity; ++a) {
      last[body.nodes[i].args[a]] = static_cast<int>(i);
    }
  }
  direct.assign(body.nodes.size(), -1);
  for (size_t k = 0; k < body.outputs.size(); ++k) {
    const BodyOutput& out = body.outputs[k];
    const ExprKind kind = body.nodes[out.node].kind;
    bool allowed = !is_sum(out) && out.row == BodyOutput::Row::kWhole && layout.varies[out.node] &&
                   facts(kind).arity > 0 && kind != ExprKind::kRotate &&
                   out_types[k].dtype == Dtype::kF32 && layout.out[k].back() == 1 &&
                   direct[out.node] < 0;
    for (size_t i = 0; allowed && i < body.nodes.size(); ++i) {
      const ExprNode& n = body.nodes[i];
      if (n.kind != ExprKind::kInput) continue;
      const auto to = span_of(at.out[k], Dtype::kF32, layout.out[k], layout.dims);
      const auto from =
          span_of(at.in[n.index], in_types[n.index].dtype, layout.in[n.index], layout.dims);
      if (from.first >= to.second || to.first >= from.second) continue;
      allowed = from == to && layout.in[n.index] == layout.out[k] && last[i] <= out.node;
    }
    if (allowed) direct[out.node] = static_cast<int>(k);
  }
}

void BodyProgram::evaluate(const Registers& r, int64_t row, int64_t first, int64_t n) const {
  for (size_t i = 0; i < layout.body.nodes.size(); ++i) {
    float* y = layout.slot[i] >= 0 ? r.slot(layout.slot[i]) : nullptr;
    if (const int k = direct[i]; k >= 0) {
      y = static_cast<float*>(at.out[k]) + row_offset(layout.dims, layout.out[k], row) + first;
    }
    make(r, i, y, row, first, n);
  }
}

void BodyProgram::make(const Registers& r, size_t i, float* y, int64_t row, int64_t first,
                       int64_t n) const {
  const ExprNode& node = layout.body.nodes[i];
  const bool varies = layout.varies[i];
  r.rows[i] = y;
  switch (node.kind) {
    case ExprKind::kConst:
      r.scalars[i] = static_cast<float>(node.value);
      break;
    case ExprKind::kInput: {
      const Strides& strides = layout.in[node.index];
      const Dtype dtype = in_types[node.index].dtype;
      const int64_t offset = row_offset(layout.dims, strides, row) + first * strides.back();
      if (!varies) {
        r.scalars[i] = static_cast<float>(load_element(at.in[node.index], dtype, offset));
      } else if (!y) {
        r.rows[i] = static_cast<const float*>(at.in[node.index]) + offset;
      } else {
        gather_any(y, at.in[node.index], dtype, offset, strides.back(), n);
      }
      break;
    }
    case ExprKind::kIndex:
      if (node.index > 0) {
        r.scalars[i] = static_cast<float>(position(row, node.index));
      } else {
        for (int64_t c = 0; c < n; ++c) y[c] = static_cast<float>(first + c);
      }
      break;
    case ExprKind::kRandom: {
      const auto* counter = static_cast<const int64_t*>(at.in[node.index]);
      uniform(y, keys[i], counter[1], counter[2] * layout.sample + row * layout.row() + first, n);
      break;
    }
    case ExprKind::kRowSum:
    case ExprKind::kRowMax:
      reduce(r, i, node, n);
      break;
    case ExprKind::kRotate: {
      const int arg = node.args[0];
      const float* x = layout.varies[arg] ? r.rows[arg] : filled(r, 0, r.scalars[arg], n);
      for (int64_t c = 0; c < n / 2; ++c) y[c] = -x[c + n / 2];
      std::memcpy(y + n / 2, x, n / 2 * sizeof(float));
      break;
    }
    case ExprKind::kSelect:
      select_rows(r, i, node, y, n);
      break;
    default:
      arithmetic(r, i, node, y, n);
  }
}

void BodyProgram::reduce(const Registers& r, size_t i, const ExprNode& node, int64_t n) const {
  const int arg = node.args[0];
  // A scalar is reduced as if it had been stored as a row, because a sum of n copies rounds
  // differently from a product by n.
  const float* x = layout.varies[arg] ? r.rows[arg] : filled(r, 0, r.scalars[arg], n);
  r.scalars[i] = node.kind == ExprKind::kRowSum ? reduce_sum(x, n) : reduce_max(x, n);
}

void BodyProgram::select_rows(const Registers& r, size_t i, const ExprNode& node, float* y,
                              int64_t n) const {
  if (!layout.varies[i]) {
    r.scalars[i] = r.scalars[node.args[0]] != 0 ? r.scalars[node.args[1]] : r.scalars[node.args[2]];
    return;
  }
  const float* rows[3];
  for (int a = 0; a < 3; ++a) {
    const int arg = node.args[a];
    rows[a] = layout.varies[arg] ? r.rows[arg] : filled(r, a, r.scalars[arg], n);
  }
  choose(y, rows[0], rows[1], rows[2], n);
}

float* BodyProgram::filled(const Registers& r, int spare, float value, int64_t n) const {
  float* row = r.slot(layout.num_slots - 3 + spare);
  std::fill(row, row + n, value);
  return row;
}

void BodyProgram::arithmetic(const Registers& r, size_t i, const ExprNode& node, float* y,
                             int64_t n) const {
  const int a = node.args[0], b = node.args[1];
  if (facts(node.kind).arity == 1) {
    const UnaryLoop loop = unary_loop(node);
    if (!layout.varies[i]) {
      r.scalars[i] = r.scalars[a];
      if (loop) loop(&r.scalars[i], &r.scalars[a], 1);
    } else if (loop) {
      loop(y, r.rows[a], n);
    } else {
      std::memmove(y, r.rows[a], n * sizeof(float));
    }
    return;
  }
  const BinaryLoops& loops = binary_loops(node.kind);
  if (!layout.varies[i]) {
    loops.vs(&r.scalars[i], &r.scalars[a], r.scalars[b], 1);
  } else if (!layout.varies[a]) {
    loops.sv(y, r.scalars[a], r.rows[b], n);
  } else if (!layout.varies[b]) {
    loops.vs(y, r.rows[a], r.scalars[b], n);
  } else {
    loops.vv(y, r.rows[a], r.rows[b], n);
  }
}

// `sums` holds the sums of all summing outputs for the suffix that this row is part of, each
// beginning at its own base; `at_suffix` is this piece's place in the suffix. An output that sums
// more axes has a shorter suffix, which repeats in the longest one.
void BodyProgram::store(const Registers& r, int64_t row, int64_t first, int64_t n, float* sums,
                        int64_t at_suffix, bool compact_sums) const {
  for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
    const BodyOutput& out = layout.body.outputs[k];
    const int node = out.node;
    const bool varies = layout.varies[node];
    const bool by_code = code && layout.tile.stored[k];
    if (layout.sum_size[k] > 0) {
      if (!by_code && out.row != BodyOutput::Row::kWhole) {
        const float value = varies ? r.rows[node][0] : r.scalars[node];
        const int64_t place = at_suffix / layout.row() % layout.sum_size[k];
        if (first == 0) sums[place] += value;  // once per row, however many pieces it has
      } else if (!by_code) {
        float* place = sums + at_suffix % layout.sum_size[k];
        accumulate(place, varies ? r.rows[node] : filled(r, 0, r.scalars[node], n), n);
      }
      sums += compact_sums ? kPiece : layout.sum_size[k];
      continue;
    }
    if (by_code || direct[node] == static_cast<int>(k)) continue;
    const int64_t offset = row_offset(layout.dims, layout.out[k], row);
    const Dtype dtype = out_types[k].dtype;
    if (out.row != BodyOutput::Row::kWhole) {
      if (first == 0) {
        store_element(at.out[k], dtype, offset, varies ? r.rows[node][0] : r.scalars[node]);
      }
      continue;
    }
    const float* from = varies ? r.rows[node] : filled(r, 0, r.scalars[node], n);
    const int64_t stride = layout.dims.size() == 1 && n == 1 ? 1 : layout.out[k].back();
    scatter_any(at.out[k], dtype, from, offset + first * layout.out[k].back(), stride, n);
  }
}

}  // namespace adjoint
