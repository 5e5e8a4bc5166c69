// The CPU's reading: a body becomes a short program that runs on one piece of a row at a time, each
// instruction a vectorized loop over values that stay in the first-level cache. Only operands and
// results touch memory. Every instruction rounds to float32, so a chain gives the same bits whether
// it runs as one program or as several.
//
// A piece is a whole row where the body reduces rows, else at most kPiece elements. Axes that every
// operand steps through evenly are merged first, so plain elementwise bodies see one long row.
//
// Sums over leading axes: rows are cut into a number of blocks that depends on the shape alone,
// each block has its own partial sums in the workspace, and the partial sums are added in order:
// the same bits for any number of threads. Nothing of this depends on what else the body computes,
// nor does the order of a row's sum: a body gives the same bits alone and joined to others.
#include <cmath>
#include <cstring>
#include <memory>

#include "base/philox.h"
#include "device/parallel.h"
#include "ops/body_layout.h"
#include "ops/body_loops.h"
#include "ops/body_readings.h"
#include "ops/elements.h"

namespace adjoint {

namespace {

struct Program {
  Layout layout;
  std::vector<Type> in_types, out_types;
  Pointers at;
  int64_t sample = 1;                  // elements of one sample, for random counters
  std::vector<int> direct;             // per node: the output that it writes straight into, or -1
  mutable std::vector<uint64_t> keys;  // per node that is random, of this launch

  struct Registers {
    float* scalars;
    const float** rows;
    float* slots;
    float* columns;
    double* totals;
    int64_t slot_floats;
    float* slot(int i) const { return slots + i * slot_floats; }
  };

  std::byte* partials() const { return static_cast<std::byte*>(at.workspace); }

  Registers registers(int thread) const {
    const int64_t nodes = static_cast<int64_t>(layout.body.nodes.size());
    std::byte* base = partials() + round_up(layout.block_bytes(), {64}).count +
                      thread * layout.thread_bytes().count;
    Registers r;
    r.rows = reinterpret_cast<const float**>(base);
    r.scalars = reinterpret_cast<float*>(base + nodes * 8);
    r.slots = reinterpret_cast<float*>(base + round_up({nodes * 16}, {64}).count);
    r.slot_floats = round_up({layout.piece * 4}, {64}).count / 4;
    r.columns = r.slots + layout.num_slots * r.slot_floats;
    r.totals = reinterpret_cast<double*>(r.columns + layout.num_summed() * kPiece);
    return r;
  }

  // Offset of operand or output `strides` at row `row`; positions go to `where`.
  static int64_t row_offset(const std::vector<int64_t>& dims, const Strides& strides, int64_t row) {
    int64_t offset = 0;
    for (size_t a = dims.size() - 1; a-- > 1;) {
      offset += (row % dims[a]) * strides[a];
      row /= dims[a];
    }
    return dims.size() > 1 ? offset + row * strides[0] : offset;
  }
  int64_t position(int64_t row, int axis_from_end) const {
    for (int back = 1; back < axis_from_end; ++back) {
      row /= layout.dims[layout.dims.size() - 1 - back];
    }
    return row % layout.dims[layout.dims.size() - 1 - axis_from_end];
  }

  // A result that lies densely in float32 is written by the instruction that makes it, if no
  // operand lies there, or the one that does has been read for the last time.
  void find_direct() {
    const Body& body = layout.body;
    std::vector<int> last(body.nodes.size(), -1);
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      last[i] = static_cast<int>(i);
      for (int a = 0; a < facts(body.nodes[i].kind).arity; ++a) {
        last[body.nodes[i].args[a]] = static_cast<int>(i);
      }
    }
    const auto span = [](const void* data, Dtype dtype, const Strides& strides,
                         const std::vector<int64_t>& dims) {
      const auto* begin = static_cast<const std::byte*>(data);
      int64_t furthest = 0;
      for (size_t a = 0; a < dims.size(); ++a) furthest += (dims[a] - 1) * strides[a];
      return std::pair(begin, begin + (furthest + 1) * size_of(dtype).count);
    };
    direct.assign(body.nodes.size(), -1);
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      const BodyOutput& out = body.outputs[k];
      const ExprKind kind = body.nodes[out.node].kind;
      bool allowed = !is_sum(out) && out.row == BodyOutput::Row::kWhole &&
                     layout.varies[out.node] && facts(kind).arity > 0 &&
                     kind != ExprKind::kRotate && out_types[k].dtype == Dtype::kF32 &&
                     layout.out[k].back() == 1 && direct[out.node] < 0;
      for (size_t i = 0; allowed && i < body.nodes.size(); ++i) {
        const ExprNode& n = body.nodes[i];
        if (n.kind != ExprKind::kInput) continue;
        const auto to = span(at.out[k], Dtype::kF32, layout.out[k], layout.dims);
        const auto from =
            span(at.in[n.index], in_types[n.index].dtype, layout.in[n.index], layout.dims);
        if (from.first >= to.second || to.first >= from.second) continue;
        allowed = from == to && layout.in[n.index] == layout.out[k] && last[i] <= out.node;
      }
      if (allowed) direct[out.node] = static_cast<int>(k);
    }
  }

  // Evaluates all nodes on elements [first, first + n) of a row.
  void evaluate(const Registers& r, int64_t row, int64_t first, int64_t n) const {
    const Body& body = layout.body;
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      const ExprNode& node = body.nodes[i];
      const bool varies = layout.varies[i];
      float* y = layout.slot[i] >= 0 ? r.slot(layout.slot[i]) : nullptr;
      if (const int k = direct[i]; k >= 0) {
        y = static_cast<float*>(at.out[k]) + row_offset(layout.dims, layout.out[k], row) + first;
      }
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
          uniform(y, keys[i], counter[1], counter[2] * sample + row * layout.row() + first, n);
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
  }

  void reduce(const Registers& r, size_t i, const ExprNode& node, int64_t n) const {
    const int arg = node.args[0];
    // One number for the whole row is reduced as if it had been stored: a sum of n is no product.
    const float* x = layout.varies[arg] ? r.rows[arg] : filled(r, 0, r.scalars[arg], n);
    r.scalars[i] = node.kind == ExprKind::kRowSum ? reduce_sum(x, n) : reduce_max(x, n);
  }

  void select_rows(const Registers& r, size_t i, const ExprNode& node, float* y, int64_t n) const {
    if (!layout.varies[i]) {
      r.scalars[i] =
          r.scalars[node.args[0]] != 0 ? r.scalars[node.args[1]] : r.scalars[node.args[2]];
      return;
    }
    const float* rows[3];
    for (int a = 0; a < 3; ++a) {
      const int arg = node.args[a];
      rows[a] = layout.varies[arg] ? r.rows[arg] : filled(r, a, r.scalars[arg], n);
    }
    choose(y, rows[0], rows[1], rows[2], n);
  }

  float* filled(const Registers& r, int spare, float value, int64_t n) const {
    float* row = r.slot(layout.num_slots - 3 + spare);
    std::fill(row, row + n, value);
    return row;
  }

  void arithmetic(const Registers& r, size_t i, const ExprNode& node, float* y, int64_t n) const {
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
  void store(const Registers& r, int64_t row, int64_t first, int64_t n, float* sums,
             int64_t at_suffix, bool compact_sums) const {
    for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
      const BodyOutput& out = layout.body.outputs[k];
      const int node = out.node;
      const bool varies = layout.varies[node];
      if (layout.sum_size[k] > 0) {
        if (out.row != BodyOutput::Row::kWhole) {
          const float value = varies ? r.rows[node][0] : r.scalars[node];
          const int64_t place = at_suffix / layout.row() % layout.sum_size[k];
          if (first == 0) sums[place] += value;  // once a row, however many pieces it has
        } else {
          float* place = sums + at_suffix % layout.sum_size[k];
          accumulate(place, varies ? r.rows[node] : filled(r, 0, r.scalars[node], n), n);
        }
        sums += compact_sums ? kPiece : layout.sum_size[k];
        continue;
      }
      if (direct[node] == static_cast<int>(k)) continue;
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

  void run() const {
    for (size_t i = 0; i < layout.body.nodes.size(); ++i) {
      const ExprNode& node = layout.body.nodes[i];
      if (node.kind != ExprKind::kRandom) continue;
      keys[i] = random_key(*static_cast<const int64_t*>(at.in[node.index]), node.text);
    }
    if (layout.by_column) {
      run_by_column();
    } else if (layout.sums) {
      run_by_block();
    } else {
      const int64_t pieces = (layout.row() + layout.piece - 1) / layout.piece;
      const int64_t grain = std::max<int64_t>(1, 8192 / layout.piece);
      parallel_for(layout.rows * pieces, grain, [&](int64_t begin, int64_t end, int thread) {
        const Registers r = registers(thread);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t row = unit / pieces, first = unit % pieces * layout.piece;
          const int64_t n = std::min(layout.piece, layout.row() - first);
          evaluate(r, row, first, n);
          store(r, row, first, n, nullptr, 0, false);
        }
      });
    }
  }

  void run_by_block() const {
    const int64_t suffix_rows = layout.rows / layout.summed_rows;
    const int64_t total = layout.total_sums();
    auto* partial = reinterpret_cast<float*>(partials());
    parallel_for(layout.blocks, 1, [&](int64_t begin, int64_t end, int thread) {
      const Registers r = registers(thread);
      for (int64_t block = begin; block < end; ++block) {
        float* sums = partial + block * total;
        std::fill(sums, sums + total, 0.0f);
        const int64_t from = layout.summed_rows * block / layout.blocks * suffix_rows;
        const int64_t to = layout.summed_rows * (block + 1) / layout.blocks * suffix_rows;
        for (int64_t row = from; row < to; ++row) {
          for (int64_t first = 0; first < layout.row(); first += layout.piece) {
            const int64_t n = std::min(layout.piece, layout.row() - first);
            evaluate(r, row, first, n);
            store(r, row, first, n, sums, row % suffix_rows * layout.row() + first, false);
          }
        }
      }
    });
    int64_t base = 0;
    for (size_t k = 0; k < layout.sum_size.size(); ++k) {
      const int64_t size = layout.sum_size[k];
      const bool whole = layout.body.outputs[k].row == BodyOutput::Row::kWhole;
      const int64_t row = whole ? layout.row() : 1;
      parallel_for(size, 4096, [&](int64_t begin, int64_t end, int) {
        for (int64_t c = begin; c < end; ++c) {
          double sum = 0;
          for (int64_t block = 0; block < layout.blocks; ++block) {
            sum += partial[block * total + base + c];
          }
          const int64_t offset =
              row_offset(layout.dims, layout.out[k], c / row) + c % row * layout.out[k].back();
          store_element(at.out[k], out_types[k].dtype, offset, sum);
        }
      });
      base += size;
    }
  }

  // Blocks as in run_by_block, one after another: who adds what to what is the same.
  void run_by_column() const {
    const int64_t suffix_rows = layout.rows / layout.summed_rows;
    const int64_t pieces = (layout.row() + layout.piece - 1) / layout.piece;
    const int64_t sums = layout.num_summed() * kPiece;
    parallel_for(suffix_rows * pieces, 1, [&](int64_t begin, int64_t end, int thread) {
      const Registers r = registers(thread);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t suffix_row = unit / pieces, first = unit % pieces * layout.piece;
        const int64_t n = std::min(layout.piece, layout.row() - first);
        std::fill(r.totals, r.totals + sums, 0.0);
        for (int64_t block = 0; block < layout.blocks; ++block) {
          std::fill(r.columns, r.columns + sums, 0.0f);
          const int64_t to = layout.summed_rows * (block + 1) / layout.blocks;
          for (int64_t lead = layout.summed_rows * block / layout.blocks; lead < to; ++lead) {
            const int64_t row = lead * suffix_rows + suffix_row;
            evaluate(r, row, first, n);
            store(r, row, first, n, r.columns, 0, true);
          }
          for (int64_t c = 0; c < sums; ++c) r.totals[c] += r.columns[c];
        }
        for (int64_t c = 0; c < sums; ++c) r.columns[c] = static_cast<float>(r.totals[c]);
        const float* from = r.columns;
        for (size_t k = 0; k < layout.sum_size.size(); ++k) {
          if (layout.sum_size[k] == 0) continue;
          const int64_t offset =
              row_offset(layout.dims, layout.out[k], suffix_row) + first * layout.out[k].back();
          scatter_any(at.out[k], out_types[k].dtype, from, offset, layout.out[k].back(), n);
          from += kPiece;
        }
      }
    });
  }
};

}  // namespace

Bytes body_workspace(const KernelCall& call) {
  const Layout layout = lay_out(call);
  return round_up(layout.block_bytes(), {64}) + int64_t{call.threads} * layout.thread_bytes();
}

Launch prepare_body_cpu(const KernelCall& call, const Pointers& at) {
  auto program = std::make_shared<Program>();
  program->layout = lay_out(call);
  program->in_types = call.call.inputs;
  program->out_types = call.outputs;
  program->at = at;
  program->keys.resize(program->layout.body.nodes.size());
  const std::vector<Axis> space = space_of(call.call);
  for (size_t a = 1; a < space.size(); ++a) program->sample *= space[a].size;
  program->find_direct();
  return [program] { program->run(); };
}

}  // namespace adjoint
