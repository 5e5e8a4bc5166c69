// The rows of an expert are gathered, piece by piece, multiplied by its matrix in one product, and
// scattered. An expert without rows costs nothing. Few rows, as those of a token, are multiplied by
// the matrices as they lie (thin_product.h).
#include "ops/expert_linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "device/parallel.h"
#include "kernels/cpu/expert_rows.h"
#include "kernels/cpu/thin_product.h"

namespace adjoint {

extern const Kernel reference_expert_linear;

namespace {

// Everything that shapes say of a call, the same while planning and while preparing.
struct ExpertProducts {
  ExpertLinearShape shape;
  Dtype dtype, inner;  // of the operands, and what is multiplied
  Strides weight;
  int64_t x_step, y_step, bias_step;
  bool widens = false;      // a matrix must be widened before it is multiplied
  bool sums_apart = false;  // sums over choices are float32 in the workspace, and narrowed after
  Bytes cap;                // on workspaces
  PieceScratch scratch;
  int64_t piece = kLeastPiece;

  explicit ExpertProducts(const KernelCall& k)
      : shape(expert_linear_shape(k.call)),
        dtype(k.call.inputs[0].dtype),
        inner(product_dtype(dtype)),
        weight(dense_strides(k.call.inputs[1])),
        x_step(k.call.inputs[0].axes.back().physical()),
        y_step(k.outputs[0].axes.back().physical()),
        bias_step(shape.bias ? k.call.inputs[3].axes.back().physical() : 0),
        widens(inner != dtype),
        sums_apart(shape.sum && dtype != Dtype::kF32),
        cap(k.workspace_cap) {
    scratch = piece_scratch([&](int64_t rows) { return matmul_workspace(product(rows)).value(); });
    piece = largest_piece(shape.count(), cap, [&](int64_t rows) { return bytes(rows).total(); });
  }

  Product product(int64_t rows) const {
    const int64_t out = shape.transposed ? 2 : 1, in = shape.transposed ? 1 : 2;
    // A widened matrix lies as the narrow one does.
    return {.batch = {},
            .m = rows,
            .n = shape.out,
            .k = shape.in,
            .a_batch = {},
            .b_batch = {},
            .c_batch = {},
            .a_m = shape.in,
            .a_k = 1,
            .b_k = weight[in],
            .b_n = weight[out],
            .c_m = shape.out,
            .c_n = 1,
            .dtype = inner,
            .workspace_cap = cap};
  }

  struct Layout {
    Bytes order, x, y, matrix, sums, scratch;
    Bytes total() const { return order + x + y + matrix + sums + scratch; }
  };
  Layout bytes(int64_t rows) const {
    const auto rounded = [](int64_t count) { return round_up({count}, {64}); };
    return {.order = SortedRows::bytes(shape),
            .x = rounded(rows * shape.in * size_of(inner).count),
            .y = rounded(rows * shape.out * 4),
            .matrix = widens ? rounded(weight[0] * 4) : Bytes{0},
            .sums = sums_apart ? rounded(shape.tokens * shape.out * 4) : Bytes{0},
            .scratch = scratch[which_piece(rows)]};
  }
};

// Columns [begin, end) of rows of results, added to the rows of their tokens.
struct AddedRows {
  const int32_t* rows;
  int64_t count, chosen, begin, end, from_step, to_step;
};
ADJOINT_SIMD void add_rows_of_tokens(const AddedRows& a, const float* from, float* sums) {
  for (int64_t r = 0; r < a.count; ++r) {
    const float* __restrict row = from + r * a.from_step;
    float* __restrict to = sums + a.rows[r] / a.chosen * a.to_step;
    for (int64_t c = a.begin; c < a.end; ++c) to[c] += row[c];
  }
}

// The bias of an expert, added to its rows.
template <class T>
void add_bias(int64_t rows, int64_t width, const T* bias, float* y) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t o = 0; o < width; ++o) y[r * width + o] += static_cast<float>(bias[o]);
    }
  });
}

// A product of few rows; nothing: there are too many of them, or they lie otherwise.
std::optional<ThinChosen> thin_of(const KernelCall& k) {
  const ExpertLinearShape s = expert_linear_shape(k.call);
  const ThinChosen thin{.rows = s.count(),
                        .matrices = s.experts,
                        .n = s.out,
                        .k = s.in,
                        .dtype = k.call.inputs[0].dtype};
  const bool lies = !s.transposed && k.call.inputs[1].axes.back().physical() == s.in;
  return lies && is_thin(thin) ? std::optional(thin) : std::nullopt;
}

Bytes order_bytes(const ExpertLinearShape& s) { return round_up(SortedRows::bytes(s), {64}); }
Bytes sums_bytes(const ExpertLinearShape& s) {
  return s.sum ? round_up(Bytes{s.tokens * s.out * 4}, {64}) : Bytes{0};
}

Launch prepare_thin_experts(const ThinChosen& thin, const KernelCall& k, const Pointers& at) {
  const ExpertLinearShape s = expert_linear_shape(k.call);
  WorkspaceRanges workspace(at.workspace);
  const SortedRows sorted(s, workspace.take(order_bytes(s)));
  auto* sums = reinterpret_cast<float*>(workspace.take(sums_bytes(s)));
  std::byte* x_space = workspace.rest();
  const int64_t x_step = k.call.inputs[0].axes.back().physical() * size_of(thin.dtype).count;
  const int64_t y_step = k.outputs[0].axes.back().physical();
  const int64_t bias_step = s.bias ? k.call.inputs[3].axes.back().physical() : 0;
  const auto* x = static_cast<const std::byte*>(at.in[0]);
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const void *weight = at.in[1], *bias = s.bias ? at.in[3] : nullptr;
  void* y = at.out[0];
  return [=] {
    sorted.sort(s, choice);
    if (s.sum) std::fill(sums, sums + s.tokens * s.out, 0.0f);
    multiply_thin(
        thin,
        [&](int64_t i) {
          return x + (s.x_each ? sorted.order[i] : sorted.order[i] / s.chosen) * x_step;
        },
        sorted.starts, weight, x_space,
        [&](int64_t i, int64_t column, std::span<const float> results) {
          const int64_t row = sorted.order[i];
          if (s.sum) {
            float* to = sums + row / s.chosen * s.out + column;
            for (size_t c = 0; c < results.size(); ++c) to[c] += results[c];
            return;
          }
          const int64_t expert = std::clamp<int64_t>(choice[row], 0, s.experts - 1);
          for (size_t c = 0; c < results.size(); ++c) {
            const int64_t o = column + static_cast<int64_t>(c);
            float result = results[c];
            if (bias) {
              result += static_cast<float>(load_element(bias, thin.dtype, expert * bias_step + o));
            }
            store_element(y, thin.dtype, row * y_step + o, result);
          }
        });
    if (!s.sum) return;
    for (int64_t token = 0; token < s.tokens; ++token) {
      for (int64_t o = 0; o < s.out; ++o) {
        store_element(y, thin.dtype, token * y_step + o, sums[token * s.out + o]);
      }
    }
  };
}

Launch prepare_expert_linear(const KernelCall& k, const Pointers& at) {
  if (k.call.inputs[0].dtype == Dtype::kF64) return reference_expert_linear.prepare(k, at);
  check_operands_are_dense(k);
  if (const auto thin = thin_of(k)) return prepare_thin_experts(*thin, k, at);
  const ExpertProducts c(k);
  const ExpertLinearShape s = c.shape;
  const auto bytes = c.bytes(c.piece);
  WorkspaceRanges workspace(at.workspace);
  const SortedRows sorted(s, workspace.take(bytes.order));
  std::byte* x_rows = workspace.take(bytes.x);
  auto* y_rows = reinterpret_cast<float*>(workspace.take(bytes.y));
  std::byte* matrix = workspace.take(bytes.matrix);
  auto* sums = reinterpret_cast<float*>(workspace.take(bytes.sums));
  auto products = std::make_shared<std::array<MatmulAt, kPieceSizes>>();
  for (int which = 0; kLeastPiece << which <= c.piece; ++which) {
    (*products)[which] = prepare_matmul_at(c.product(kLeastPiece << which), workspace.rest());
  }
  const auto* x = static_cast<const std::byte*>(at.in[0]);
  const auto* weight = static_cast<const std::byte*>(at.in[1]);
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const auto* bias = s.bias ? static_cast<const std::byte*>(at.in[3]) : nullptr;
  auto* y = static_cast<std::byte*>(at.out[0]);
  if (s.sum && !c.sums_apart) sums = reinterpret_cast<float*>(y);
  const int64_t sums_step = c.sums_apart ? s.out : c.y_step;
  const int64_t size = size_of(c.dtype).count, inner_size = size_of(c.inner).count;
  return [=] {
    sorted.sort(s, choice);
    if (s.sum) {
      parallel_for(s.tokens, 64, [&](int64_t begin, int64_t end, int) {
        std::fill(sums + begin * sums_step, sums + end * sums_step, 0.0f);
      });
    }
    for (int64_t e = 0; e < s.experts; ++e) {
      const int64_t begin = sorted.starts[e], end = sorted.starts[e + 1];
      if (begin == end) continue;
      const std::byte* mine = weight + e * c.weight[0] * size;
      if (c.widens) {
        const int64_t row = c.weight[1];
        convert_rows(
            c.weight[0] / row, row, c.dtype, [&](int64_t r) { return mine + r * row * size; },
            c.inner, [&](int64_t r) { return matrix + r * row * inner_size; });
        mine = matrix;
      }
      for_each_piece(begin, end, c.piece, [&](int64_t first, int64_t count, int which) {
        const int32_t* rows = sorted.order + first;
        convert_rows(
            count, s.in, c.dtype,
            [&](int64_t r) {
              return x + (s.x_each ? rows[r] : rows[r] / s.chosen) * c.x_step * size;
            },
            c.inner, [&](int64_t r) { return x_rows + r * s.in * inner_size; });
        (*products)[which](x_rows, mine, y_rows);
        if (s.sum) {
          // Shares of columns: a token may have chosen an expert twice.
          parallel_for(s.out, std::max<int64_t>(16, 16384 / count),
                       [&](int64_t from, int64_t to, int) {
                         add_rows_of_tokens({rows, count, s.chosen, from, to, s.out, sums_step},
                                            y_rows, sums);
                       });
          return;
        }
        if (bias) {
          with_float_type(c.dtype, [&]<class T>() {
            add_bias(count, s.out, reinterpret_cast<const T*>(bias) + e * c.bias_step, y_rows);
          });
        }
        convert_rows(
            count, s.out, Dtype::kF32, [&](int64_t r) { return y_rows + r * s.out; }, c.dtype,
            [&](int64_t r) { return y + rows[r] * c.y_step * size; });
      });
    }
    if (c.sums_apart) {
      convert_rows(
          s.tokens, s.out, Dtype::kF32, [&](int64_t r) { return sums + r * s.out; }, c.dtype,
          [&](int64_t r) { return y + r * c.y_step * size; });
    }
  };
}

}  // namespace

extern const Kernel cpu_expert_linear = {
    .op = "expert_linear",
    .prepare = prepare_expert_linear,
    .workspace =
        [](const KernelCall& k) {
          if (k.call.inputs[0].dtype == Dtype::kF64) return Bytes{0};
          if (const auto thin = thin_of(k)) {
            const ExpertLinearShape s = expert_linear_shape(k.call);
            return order_bytes(s) + sums_bytes(s) + thin_workspace(*thin);
          }
          const ExpertProducts c(k);
          return c.bytes(c.piece).total();
        },
};

}  // namespace adjoint
