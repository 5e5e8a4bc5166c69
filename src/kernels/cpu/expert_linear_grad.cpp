// The rows of an expert are gathered, piece by piece, and each piece is one product whose sums are
// added to those of the piece before it. Sums are float32: in the result, or in the workspace where
// the result is narrower.
#include <algorithm>
#include <array>
#include <memory>

#include "device/parallel.h"
#include "kernels/cpu/expert_rows.h"

namespace adjoint {

extern const Kernel reference_expert_linear_grad;

namespace {

// Everything that shapes say of a call, the same while planning and while preparing.
struct ExpertSums {
  ExpertGradShape shape;
  Dtype dtype, inner, out;  // of the operands, what is multiplied, and of the result
  int64_t a_step, b_step;
  Strides to, addend;
  bool apart;  // sums are in the workspace
  Bytes cap;   // on workspaces
  PieceScratch scratch;
  int64_t piece = kLeastPiece;

  explicit ExpertSums(const KernelCall& k)
      : shape(expert_grad_shape(k.call)),
        dtype(k.call.inputs[0].dtype),
        inner(product_dtype(dtype)),
        out(k.outputs[0].dtype),
        a_step(k.call.inputs[0].axes.back().physical()),
        b_step(k.call.inputs[1].axes.back().physical()),
        to(dense_strides(k.outputs[0])),
        addend(shape.addend ? dense_strides(k.call.inputs[3]) : to),
        apart(out != Dtype::kF32),
        cap(k.workspace_cap) {
    scratch = piece_scratch([&](int64_t rows) {
      return std::max(matmul_workspace(product(rows, true)).value(),
                      matmul_workspace(product(rows, false)).value());
    });
    piece = largest_piece(shape.count(), cap, [&](int64_t rows) { return bytes(rows).total(); });
  }

  int64_t sums_step() const { return apart ? shape.q : to[1]; }

  Product product(int64_t rows, bool begins) const {
    return {.batch = {},
            .m = shape.p,
            .n = shape.q,
            .k = rows,
            .a_batch = {},
            .b_batch = {},
            .c_batch = {},
            .a_m = 1,
            .a_k = shape.p,
            .b_k = shape.q,
            .b_n = 1,
            .c_m = sums_step(),
            .c_n = 1,
            .dtype = inner,
            .accumulate = !begins,
            .workspace_cap = cap};
  }

  struct Layout {
    Bytes order, a, b, sums, scratch;
    Bytes total() const { return order + a + b + sums + scratch; }
  };
  Layout bytes(int64_t rows) const {
    const auto rounded = [](int64_t count) { return round_up({count}, {64}); };
    return {.order = SortedRows::bytes(shape),
            .a = rounded(rows * shape.p * size_of(inner).count),
            .b = rounded(rows * shape.q * size_of(inner).count),
            .sums = apart ? rounded(shape.p * shape.q * 4) : Bytes{0},
            .scratch = scratch[which_piece(rows)]};
  }
};

Launch prepare_expert_grad(const KernelCall& k, const Pointers& at) {
  if (k.call.inputs[0].dtype == Dtype::kF64) return reference_expert_linear_grad.prepare(k, at);
  check_operands_are_dense(k);
  const ExpertSums c(k);
  const ExpertGradShape s = c.shape;
  const auto bytes = c.bytes(c.piece);
  WorkspaceRanges workspace(at.workspace);
  const SortedRows sorted(s, workspace.take(bytes.order));
  std::byte *a_rows = workspace.take(bytes.a), *b_rows = workspace.take(bytes.b),
            *apart = workspace.take(bytes.sums);
  struct Ways {
    std::array<MatmulAt, kPieceSizes> begin, add;
  };
  auto products = std::make_shared<Ways>();
  for (int which = 0; kLeastPiece << which <= c.piece; ++which) {
    products->begin[which] =
        prepare_matmul_at(c.product(kLeastPiece << which, true), workspace.rest());
    products->add[which] =
        prepare_matmul_at(c.product(kLeastPiece << which, false), workspace.rest());
  }
  const auto* a = static_cast<const std::byte*>(at.in[0]);
  const auto* b = static_cast<const std::byte*>(at.in[1]);
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const auto* addend = s.addend ? static_cast<const std::byte*>(at.in[3]) : nullptr;
  auto* out = static_cast<std::byte*>(at.out[0]);
  const int64_t size = size_of(c.dtype).count, inner_size = size_of(c.inner).count;
  const int64_t out_size = size_of(c.out).count;
  return [=] {
    sorted.sort(s, choice);
    for (int64_t e = 0; e < s.experts; ++e) {
      const int64_t begin = sorted.starts[e], end = sorted.starts[e + 1];
      std::byte* result = out + e * c.to[0] * out_size;
      const std::byte* before = addend ? addend + e * c.addend[0] * out_size : nullptr;
      const auto result_row = [&](int64_t r) { return result + r * c.to[1] * out_size; };
      const auto row_before = [&](int64_t r) {
        return before ? before + r * c.addend[1] * out_size : nullptr;
      };
      if (begin == end) {  // zeros, or the addend as it is
        if (before != result) {
          convert_rows(s.p, s.q, c.out, row_before, c.out, result_row);
        }
        continue;
      }
      std::byte* sums = c.apart ? apart : result;
      if (before && before != sums) {
        convert_rows(s.p, s.q, c.out, row_before, Dtype::kF32,
                     [&](int64_t r) { return sums + r * c.sums_step() * 4; });
      }
      for_each_piece(begin, end, c.piece, [&](int64_t first, int64_t count, int which) {
        const int32_t* rows = sorted.order + first;
        // Rows that fill the piece up are zeros: they are summed over.
        const auto source = [&](const std::byte* from, bool each, int64_t step) {
          return [=](int64_t r) -> const void* {
            if (r >= count) return nullptr;
            return from + (each ? rows[r] : rows[r] / s.chosen) * step * size;
          };
        };
        convert_rows(kLeastPiece << which, s.p, c.dtype, source(a, s.a_each, c.a_step), c.inner,
                     [&](int64_t r) { return a_rows + r * s.p * inner_size; });
        convert_rows(kLeastPiece << which, s.q, c.dtype, source(b, s.b_each, c.b_step), c.inner,
                     [&](int64_t r) { return b_rows + r * s.q * inner_size; });
        const bool begins = first == begin && !before;
        (begins ? products->begin : products->add)[which](a_rows, b_rows, sums);
      });
      if (c.apart) {
        convert_rows(
            s.p, s.q, Dtype::kF32, [&](int64_t r) { return sums + r * s.q * 4; }, c.out,
            result_row);
      }
    }
  };
}

}  // namespace

extern const Kernel cpu_expert_linear_grad = {
    .op = "expert_linear_grad",
    .prepare = prepare_expert_grad,
    .workspace =
        [](const KernelCall& k) {
          if (k.call.inputs[0].dtype == Dtype::kF64) return Bytes{0};
          const ExpertSums c(k);
          return c.bytes(c.piece).total();
        },
};

}  // namespace adjoint
