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
// the same bits for any number of threads.
#include <cmath>
#include <cstring>
#include <memory>

#include "base/philox.h"
#include "device/parallel.h"
#include "ops/body_readings.h"
#include "ops/elements.h"
#include "ops/vector_math.h"

namespace adjoint {

namespace {

constexpr int64_t kPiece = 1024;        // elements: 4 KiB a register, half a dozen fit in L1
constexpr int64_t kMaxBlocks = 64;      // of rows, for sums over leading axes
constexpr int64_t kWideSuffix = 16384;  // elements: from here on sums are split by column instead
constexpr int kLanes = 16;              // of a row reduction, whatever the vector width is

// y may be a or b themselves: each element is read before it is written.
#define UNARY(name, expression)                                 \
  ADJOINT_SIMD void name(float* y, const float* a, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {      \
      const float x = a[i];                                     \
      y[i] = expression;                                        \
    }                                                           \
  }
#define BINARY(name, expression)                                                       \
  ADJOINT_SIMD void name##_vv(float* out, const float* a, const float* b, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float x = a[i], y = b[i];                                                  \
      out[i] = expression;                                                             \
    }                                                                                  \
  }                                                                                    \
  ADJOINT_SIMD void name##_vs(float* out, const float* a, float y, int64_t n) {        \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float x = a[i];                                                            \
      out[i] = expression;                                                             \
    }                                                                                  \
  }                                                                                    \
  ADJOINT_SIMD void name##_sv(float* out, float x, const float* b, int64_t n) {        \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float y = b[i];                                                            \
      out[i] = expression;                                                             \
    }                                                                                  \
  }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x* y)
BINARY(div, x / y)
BINARY(min, y < x ? y : x)
BINARY(max, x < y ? y : x)
BINARY(less, x < y ? 1.0f : 0.0f)
BINARY(equal, x == y ? 1.0f : 0.0f)
UNARY(neg, -x)
UNARY(exp, fast_exp(x))
UNARY(log, std::log(x))
UNARY(sqrt, std::sqrt(x))
UNARY(tanh, fast_tanh(x))
UNARY(erf, std::erf(x))
UNARY(sin, std::sin(x))
UNARY(cos, std::cos(x))
UNARY(finite, x - x == 0.0f ? 1.0f : 0.0f)
UNARY(round_bf16, float(BFloat16(x)))
UNARY(round_f16, float(Float16(x)))

ADJOINT_SIMD void choose(float* y, const float* a, const float* b, const float* c, int64_t n) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) y[i] = a[i] != 0.0f ? b[i] : c[i];
}

ADJOINT_SIMD float reduce_sum(const float* a, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += a[i + k];
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += a[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

ADJOINT_SIMD float reduce_max(const float* a, int64_t n) {
  float all = -INFINITY;
  for (int64_t i = 0; i < n; ++i) all = all < a[i] ? a[i] : all;
  return all;
}

ADJOINT_SIMD void accumulate(float* sum, const float* a, int64_t n) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) sum[i] += a[i];
}

ADJOINT_SIMD void uniform(float* y, uint64_t key, uint64_t step, uint64_t first, int64_t n) {
  const RandomStream stream{key, step};
  int64_t i = 0;
  for (; i < n && (first + i) % 4; ++i) y[i] = static_cast<float>(stream.uniform(first + i));
  for (; i + 4 <= n; i += 4) {
    const PhiloxBlock words = stream.block((first + i) / 4);
    for (int k = 0; k < 4; ++k) y[i + k] = static_cast<float>(words[k] >> 8) * 0x1p-24f;
  }
  for (; i < n; ++i) y[i] = static_cast<float>(stream.uniform(first + i));
}

template <class T>
ADJOINT_INLINE void gather(float* y, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(from[i * stride]);
  }
}
ADJOINT_SIMD void gather_any(float* y, const void* from, Dtype dtype, int64_t offset,
                             int64_t stride, int64_t n) {
  switch (dtype) {
    case Dtype::kF32:
      return gather(y, static_cast<const float*>(from) + offset, stride, n);
    case Dtype::kBF16:
      return gather(y, static_cast<const BFloat16*>(from) + offset, stride, n);
    case Dtype::kF16:
      return gather(y, static_cast<const Float16*>(from) + offset, stride, n);
    case Dtype::kF64:
      return gather(y, static_cast<const double*>(from) + offset, stride, n);
    case Dtype::kI32:
      return gather(y, static_cast<const int32_t*>(from) + offset, stride, n);
    case Dtype::kI64:
      return gather(y, static_cast<const int64_t*>(from) + offset, stride, n);
  }
}

template <class T>
ADJOINT_INLINE void scatter(T* to, const float* y, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i * stride] = static_cast<T>(y[i]);
}
ADJOINT_SIMD void scatter_any(void* to, Dtype dtype, const float* y, int64_t offset, int64_t stride,
                              int64_t n) {
  switch (dtype) {
    case Dtype::kF32:
      if (stride == 1) {
        std::memmove(static_cast<float*>(to) + offset, y, n * sizeof(float));
        return;
      }
      return scatter(static_cast<float*>(to) + offset, y, stride, n);
    case Dtype::kBF16:
      return scatter(static_cast<BFloat16*>(to) + offset, y, stride, n);
    case Dtype::kF16:
      return scatter(static_cast<Float16*>(to) + offset, y, stride, n);
    case Dtype::kF64:
      return scatter(static_cast<double*>(to) + offset, y, stride, n);
    case Dtype::kI32:
      return scatter(static_cast<int32_t*>(to) + offset, y, stride, n);
    case Dtype::kI64:
      return scatter(static_cast<int64_t*>(to) + offset, y, stride, n);
  }
}

struct BinaryLoops {
  void (*vv)(float*, const float*, const float*, int64_t);
  void (*vs)(float*, const float*, float, int64_t);
  void (*sv)(float*, float, const float*, int64_t);
};
const BinaryLoops& binary_loops(ExprKind kind) {
  static const BinaryLoops loops[] = {{add_vv, add_vs, add_sv},    {sub_vv, sub_vs, sub_sv},
                                      {mul_vv, mul_vs, mul_sv},    {div_vv, div_vs, div_sv},
                                      {min_vv, min_vs, min_sv},    {max_vv, max_vs, max_sv},
                                      {less_vv, less_vs, less_sv}, {equal_vv, equal_vs, equal_sv}};
  return loops[static_cast<int>(kind) - static_cast<int>(ExprKind::kAdd)];
}

using UnaryLoop = void (*)(float*, const float*, int64_t);
UnaryLoop unary_loop(const ExprNode& n) {
  switch (n.kind) {
    case ExprKind::kNeg:
      return neg;
    case ExprKind::kExp:
      return exp;
    case ExprKind::kLog:
      return log;
    case ExprKind::kSqrt:
      return sqrt;
    case ExprKind::kTanh:
      return tanh;
    case ExprKind::kErf:
      return erf;
    case ExprKind::kSin:
      return sin;
    case ExprKind::kCos:
      return cos;
    case ExprKind::kFinite:
      return finite;
    case ExprKind::kRound:
      if (static_cast<Dtype>(n.index) == Dtype::kBF16) return round_bf16;
      if (static_cast<Dtype>(n.index) == Dtype::kF16) return round_f16;
      return nullptr;
    default:
      return nullptr;
  }
}

// The iteration space after merging, and what is known of it before any data.
struct Layout {
  Body body;
  std::vector<int64_t> dims;     // leading (summed) axes, then the rest; the last is the row
  std::vector<size_t> leads;     // per output: how many of them it sums; 0 if it sums none
  size_t leading = 0;            // the least of those that sum: they all sum at least these
  std::vector<Strides> in, out;  // along dims
  std::vector<bool> varies;      // per node: along the row
  std::vector<int> slot;         // per node: its register, or -1
  int num_slots = 0;
  int64_t piece = 0;  // elements of a register
  bool sums = false, by_column = false;
  int64_t rows = 1, summed_rows = 1, blocks = 1;
  std::vector<int64_t> sum_size;  // per output: elements of its sums, 0 if it has none

  int64_t row() const { return dims.back(); }
  int64_t total_sums() const {
    int64_t total = 0;
    for (const int64_t size : sum_size) total += size;
    return total;
  }
  // Bytes of one thread's registers.
  Bytes thread_bytes() const {
    const int64_t nodes = static_cast<int64_t>(body.nodes.size());
    Bytes bytes = round_up({nodes * 16}, {64});
    bytes += {int64_t{num_slots} * round_up({piece * 4}, {64}).count};
    if (by_column) bytes += round_up({total_sums() ? kPiece * 4 * num_summed() : 0}, {64});
    return bytes;
  }
  int64_t num_summed() const {
    int64_t count = 0;
    for (const int64_t size : sum_size) count += size > 0;
    return count;
  }
  Bytes block_bytes() const { return by_column ? Bytes{0} : Bytes{blocks * total_sums() * 4}; }
};

bool is_sum(const BodyOutput& out) {
  return out.summed_axes > 0 || out.row == BodyOutput::Row::kDropped;
}

void merge_axes(Layout& layout) {
  const bool one_a_row =
      std::any_of(layout.body.outputs.begin(), layout.body.outputs.end(),
                  [](const BodyOutput& out) { return out.row == BodyOutput::Row::kOne; });
  const bool keep_row = layout.body.needs_whole_rows() || one_a_row;
  for (size_t a = layout.dims.size() - 1; a-- > 0;) {
    const size_t b = a + 1;
    const bool edge = std::count(layout.leads.begin(), layout.leads.end(), b) > 0;
    if (edge || (keep_row && b + 1 == layout.dims.size())) continue;
    const bool one_a = layout.dims[a] == 1, one_b = layout.dims[b] == 1;
    const auto even = [&](const Strides& s) {
      return one_a || one_b || s[a] == s[b] * layout.dims[b];
    };
    if (!std::all_of(layout.in.begin(), layout.in.end(), even) ||
        !std::all_of(layout.out.begin(), layout.out.end(), even)) {
      continue;
    }
    layout.dims[b] *= layout.dims[a];
    layout.dims.erase(layout.dims.begin() + a);
    for (auto* all : {&layout.in, &layout.out}) {
      for (Strides& s : *all) {
        if (one_b) s[b] = s[a];
        s.erase(s.begin() + a);
      }
    }
    for (size_t& lead : layout.leads) lead -= a < lead;
  }
}

// Registers by last use; an elementwise instruction may write over an operand that ends there.
void assign_slots(Layout& layout, const std::vector<Type>& in_types) {
  const Body& body = layout.body;
  std::vector<int> last(body.nodes.size(), -1);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    for (int a = 0; a < facts(body.nodes[i].kind).arity; ++a) {
      last[body.nodes[i].args[a]] = static_cast<int>(i);
    }
  }
  const int end = static_cast<int>(body.nodes.size());
  for (const BodyOutput& out : body.outputs) last[out.node] = end;
  std::vector<int> free_slots;
  layout.slot.assign(body.nodes.size(), -1);
  const auto take = [&] {
    if (free_slots.empty()) return layout.num_slots++;
    const int slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  };
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const ExprNode& n = body.nodes[i];
    const auto free_operands = [&] {
      for (int a = 0; a < facts(n.kind).arity; ++a) {
        const int arg = n.args[a];
        const bool again = a > 0 && (arg == n.args[0] || (a > 1 && arg == n.args[1]));
        if (!again && last[arg] == static_cast<int>(i) && layout.slot[arg] >= 0) {
          free_slots.push_back(layout.slot[arg]);
        }
      }
    };
    const bool in_place = n.kind != ExprKind::kRotate && n.kind != ExprKind::kSelect;
    if (in_place) free_operands();
    if (layout.varies[i] && n.kind != ExprKind::kConst) {
      // Read where it lies; but not if it is one of several results, for an earlier one may have
      // taken its place by then.
      const bool direct = n.kind == ExprKind::kInput && layout.in[n.index].back() == 1 &&
                          in_types[n.index].dtype == Dtype::kF32 &&
                          (last[i] < end || body.outputs.size() == 1);
      if (!direct) layout.slot[i] = take();
    }
    if (!in_place) free_operands();
    if (last[i] < 0 && layout.slot[i] >= 0) free_slots.push_back(layout.slot[i]);
  }
  layout.num_slots += 3;  // scalars that `select` or an output needs as rows
}

Layout lay_out(const KernelCall& call) {
  Layout layout;
  layout.body = body_of(call.call);
  const std::vector<Axis> space = space_of(call.call);
  for (const Axis& axis : space) layout.dims.push_back(axis.size);
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    layout.in.push_back(stretch(call.in_strides[i], call.call.inputs[i], space));
  }
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    layout.out.push_back(stretch_output(call.out_strides[k], layout.body.outputs[k], space.size()));
  }
  if (space.empty()) {
    layout.dims = {1};
    for (auto* all : {&layout.in, &layout.out}) {
      for (Strides& s : *all) s = {0};
    }
  }
  // The random counter is no operand of the space.
  for (const ExprNode& n : layout.body.nodes) {
    if (n.kind == ExprKind::kRandom) layout.in[n.index].assign(layout.dims.size(), 0);
  }
  for (const BodyOutput& out : layout.body.outputs) {
    const bool dropped = out.row == BodyOutput::Row::kDropped;
    layout.leads.push_back(dropped ? layout.dims.size() - 1 : out.summed_axes);
  }
  if (!layout.body.uses_index() && layout.dims.size() > 1) merge_axes(layout);
  bool alike = true;  // all sums are of whole rows over the same axes
  for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
    const BodyOutput& out = layout.body.outputs[k];
    if (!is_sum(out)) continue;
    alike = alike && out.row == BodyOutput::Row::kWhole &&
            (!layout.sums || layout.leads[k] == layout.leading);
    layout.leading = layout.sums ? std::min(layout.leading, layout.leads[k]) : layout.leads[k];
    layout.sums = true;
  }

  for (size_t a = 0; a + 1 < layout.dims.size(); ++a) layout.rows *= layout.dims[a];
  for (size_t a = 0; a < layout.leading; ++a) layout.summed_rows *= layout.dims[a];
  const auto suffix_of = [&](size_t leads) {
    int64_t suffix = 1;
    for (size_t a = leads; a < layout.dims.size(); ++a) suffix *= layout.dims[a];
    return suffix;
  };
  for (size_t k = 0; k < layout.body.outputs.size(); ++k) {
    const BodyOutput& out = layout.body.outputs[k];
    const bool dropped = out.row == BodyOutput::Row::kDropped;
    const int64_t suffix = suffix_of(layout.leads[k]);
    const bool one = out.row == BodyOutput::Row::kOne;
    layout.sum_size.push_back(!is_sum(out) ? 0
                              : dropped    ? 1
                              : one        ? suffix / layout.row()
                                           : suffix);
  }
  const bool whole = layout.body.needs_whole_rows();
  layout.by_column = layout.sums && alike && !whole && suffix_of(layout.leading) >= kWideSuffix;
  layout.blocks = layout.sums && !layout.by_column ? std::min(layout.summed_rows, kMaxBlocks) : 1;
  layout.piece = whole ? layout.row() : std::min(layout.row(), kPiece);

  for (const ExprNode& n : layout.body.nodes) {
    bool varies = false;
    switch (n.kind) {
      case ExprKind::kInput:
        varies = layout.in[n.index].back() != 0;
        break;
      case ExprKind::kIndex:
        varies = n.index == 0;
        break;
      case ExprKind::kRandom:
      case ExprKind::kRotate:
        varies = true;
        break;
      case ExprKind::kRowSum:
      case ExprKind::kRowMax:
        break;
      default:
        for (int a = 0; a < facts(n.kind).arity; ++a) varies = varies || layout.varies[n.args[a]];
    }
    layout.varies.push_back(varies);
  }
  assign_slots(layout, call.call.inputs);
  return layout;
}

struct Program {
  Layout layout;
  std::vector<Type> in_types, out_types;
  Pointers at;
  int64_t sample = 1;  // elements of one sample, for random counters
  int direct = -1;     // node that may write straight into the only output

  struct Registers {
    float* scalars;
    const float** rows;
    float* slots;
    float* columns;
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
    return r;
  }

  // Offset of operand or output `strides` at row `row`; positions go to `where`.
  static int64_t row_offset(const std::vector<int64_t>& dims, const Strides& strides, int64_t row) {
    int64_t offset = 0;
    for (size_t a = dims.size() - 1; a-- > 0;) {
      offset += (row % dims[a]) * strides[a];
      row /= dims[a];
    }
    return offset;
  }
  int64_t position(int64_t row, int axis_from_end) const {
    for (int back = 1; back < axis_from_end; ++back) {
      row /= layout.dims[layout.dims.size() - 1 - back];
    }
    return row % layout.dims[layout.dims.size() - 1 - axis_from_end];
  }

  // Evaluates all nodes on elements [first, first + n) of a row.
  void evaluate(const Registers& r, int64_t row, int64_t first, int64_t n) const {
    const Body& body = layout.body;
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      const ExprNode& node = body.nodes[i];
      const bool varies = layout.varies[i];
      float* y = layout.slot[i] >= 0 ? r.slot(layout.slot[i]) : nullptr;
      if (static_cast<int>(i) == direct) {
        y = static_cast<float*>(at.out[0]) + row_offset(layout.dims, layout.out[0], row) + first;
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
          uniform(y, random_key(counter[0], node.text), counter[1],
                  counter[2] * sample + row * layout.row() + first, n);
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
    const bool sum = node.kind == ExprKind::kRowSum;
    if (layout.varies[arg]) {
      r.scalars[i] = sum ? reduce_sum(r.rows[arg], n) : reduce_max(r.rows[arg], n);
    } else {
      r.scalars[i] = sum ? r.scalars[arg] * static_cast<float>(n) : r.scalars[arg];
    }
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
      if (node == direct) continue;
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

  void run_by_column() const {
    const int64_t suffix_rows = layout.rows / layout.summed_rows;
    const int64_t pieces = (layout.row() + layout.piece - 1) / layout.piece;
    parallel_for(suffix_rows * pieces, 1, [&](int64_t begin, int64_t end, int thread) {
      const Registers r = registers(thread);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t suffix_row = unit / pieces, first = unit % pieces * layout.piece;
        const int64_t n = std::min(layout.piece, layout.row() - first);
        std::fill(r.columns, r.columns + layout.num_summed() * kPiece, 0.0f);
        for (int64_t lead = 0; lead < layout.summed_rows; ++lead) {
          const int64_t row = lead * suffix_rows + suffix_row;
          evaluate(r, row, first, n);
          store(r, row, first, n, r.columns, 0, true);
        }
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
  const std::vector<Axis> space = space_of(call.call);
  for (size_t a = 1; a < space.size(); ++a) program->sample *= space[a].size;
  const Layout& layout = program->layout;
  const BodyOutput& out = layout.body.outputs[0];
  const int last = static_cast<int>(layout.body.nodes.size()) - 1;
  const ExprKind kind = layout.body.nodes[last].kind;
  // The last instruction may write into the result itself: by then every operand has been read.
  if (layout.body.outputs.size() == 1 && !is_sum(out) && out.node == last &&
      out.row == BodyOutput::Row::kWhole && layout.varies[last] && facts(kind).arity > 0 &&
      kind != ExprKind::kRotate && call.outputs[0].dtype == Dtype::kF32 &&
      layout.out[0].back() == 1) {
    program->direct = last;
  }
  return [program] { program->run(); };
}

}  // namespace adjoint
