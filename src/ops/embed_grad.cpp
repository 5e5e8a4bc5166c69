// dtable[r, :] = sum of dy over the places whose id is r. Threads share out the columns, so no two
// write one element, no atomics are needed, and the order of every sum is that of the data. Shares
// of rows would be uneven: a tokenizer gives its first ids to what is frequent. A third operand of
// the result's type is added to the sums, and may be overwritten by them: rows without a place then
// stay as they lie.
#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2 && call.inputs.size() != 3) {
    fail("embed_grad: wants ids, the gradient of the rows, and maybe an addend");
  }
  const Type &ids = call.inputs[0], &dy = call.inputs[1];
  bool fits = ids.dtype == Dtype::kI32 && is_float(dy.dtype) && dy.rank() == ids.rank() + 1;
  for (int i = 0; fits && i < ids.rank(); ++i) fits = ids.dim(i) == dy.dim(i);
  if (!fits) {
    fail("embed_grad: ids ", to_string(ids), " do not fit rows ", to_string(dy),
         ": one i32 id for each row of floating numbers is wanted");
  }
  const auto dtype = dtype_named(call.text("dtype", name(dy.dtype)));
  // Sums are float64 where all is, so a kernel is all float64 or not at all.
  if (!dtype || !is_float(*dtype) || (*dtype == Dtype::kF64) != (dy.dtype == Dtype::kF64)) {
    fail("embed_grad: rows of ", name(dy.dtype), " are not summed to '",
         call.text("dtype", name(dy.dtype)), "'");
  }
  const Type out{*dtype, {{"rows", call.integer("rows")}, dy.axes.back()}};
  if (call.inputs.size() == 3 &&
      (!same_shape(call.inputs[2], out) || call.inputs[2].dtype != out.dtype)) {
    fail("embed_grad: the addend must be ", to_string(out), " as the result is, found ",
         to_string(call.inputs[2]));
  }
  return {out};
}

constexpr int64_t kColumns = 16;  // a cache line of floats: the least that a thread takes

// Columns [0, width) of the rows of dy, added to rows [first, last) of the table.
struct Rows {
  const int32_t* ids;
  int64_t count, first, last, rows;  // of ids; of the table: now, and in all
  int64_t width, from_step, step;
};
template <class W, class T>
ADJOINT_INLINE void add_rows_of(W* __restrict sums, const T* __restrict dy, const Rows& r) {
  for (int64_t i = 0; i < r.count; ++i) {
    const int64_t row = std::clamp<int64_t>(r.ids[i], 0, r.rows - 1);
    if (row < r.first || row >= r.last) continue;
    W* __restrict sum = sums + (row - r.first) * r.step;
    const T* __restrict from = dy + i * r.from_step;
    for (int64_t c = 0; c < r.width; ++c) sum[c] += static_cast<W>(from[c]);
  }
}
ADJOINT_SIMD void add_rows(float* sums, const float* dy, const Rows& r) {
  add_rows_of(sums, dy, r);
}
ADJOINT_SIMD void add_rows(float* sums, const BFloat16* dy, const Rows& r) {
  add_rows_of(sums, dy, r);
}
ADJOINT_SIMD void add_rows(float* sums, const Float16* dy, const Rows& r) {
  add_rows_of(sums, dy, r);
}
template <class W, class T>  // of float64, for the tests' sake
void add_rows(W* sums, const T* dy, const Rows& r) {
  add_rows_of(sums, dy, r);
}

// 16-bit results are summed in float32, in the workspace: a bf16 sum of ones stops at 256.
template <class Out>
constexpr bool kSumsElsewhere = !std::is_same_v<Out, typename Wide<Out>::type>;

// How many rows are summed before they are narrowed: what the cap leaves room for, one at least.
int64_t rows_at_once(const KernelCall& k) {
  const int64_t row_bytes = std::max<int64_t>(1, k.outputs[0].axes.back().physical() * 4);
  return std::clamp<int64_t>(k.workspace_cap.count / row_bytes, 1,
                             std::max<int64_t>(1, k.outputs[0].dim(0)));
}

template <class Out, class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  using W = typename Wide<Out>::type;
  const Type &ids_type = k.call.inputs[0], &dy_type = k.call.inputs[1];
  CHECK(k.in_strides[0] == dense_strides(ids_type), "ids are dense");
  CHECK(k.in_strides[1] == dense_strides(dy_type), "the gradient of the rows is dense");
  const int64_t count = ids_type.num_elements(), rows = k.call.integer("rows");
  const int64_t width = dy_type.dim(-1), from_step = dy_type.axes.back().physical();
  const int64_t step = k.out_strides[0][0];
  const auto* ids = static_cast<const int32_t*>(at.in[0]);
  const auto* dy = static_cast<const T*>(at.in[1]);
  const auto* addend = at.in.size() > 2 ? static_cast<const Out*>(at.in[2]) : nullptr;
  auto* out = static_cast<Out*>(at.out[0]);
  const int64_t addend_step = addend ? k.in_strides[2][0] : 0;
  const int64_t at_once = kSumsElsewhere<Out> ? rows_at_once(k) : rows;
  void* workspace = at.workspace;
  const int64_t shares = (width + kColumns - 1) / kColumns;
  const int64_t worth_a_thread = std::max<int64_t>(1, 8192 / (kColumns * count + 1));
  return [=] {
    for (int64_t first = 0; first < rows; first += at_once) {
      W* sums = kSumsElsewhere<Out> ? static_cast<W*>(workspace) : reinterpret_cast<W*>(out);
      const int64_t size = std::min(at_once, rows - first);
      parallel_for(size, 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          W* to = sums + row * step;
          const Out* from = addend ? addend + (first + row) * addend_step : nullptr;
          if (!from) {
            std::fill(to, to + step, W{0});
          } else if (static_cast<const void*>(from) != to) {
            for (int64_t c = 0; c < width; ++c) to[c] = static_cast<W>(from[c]);
          }
        }
      });
      parallel_for(shares, worth_a_thread, [&](int64_t begin, int64_t end, int) {
        const int64_t column = begin * kColumns, past = std::min(width, end * kColumns);
        add_rows(sums + column, dy + column,
                 {.ids = ids,
                  .count = count,
                  .first = first,
                  .last = first + size,
                  .rows = rows,
                  .width = past - column,
                  .from_step = from_step,
                  .step = step});
      });
      if constexpr (kSumsElsewhere<Out>) {
        parallel_for(size, 16, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin * step; i < end * step; ++i) {
            out[first * step + i] = static_cast<Out>(sums[i]);
          }
        });
      }
    }
  };
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  return with_float_type(k.outputs[0].dtype, [&]<class Out>() {
    return with_float_type(k.call.inputs[1].dtype,
                           [&]<class T>() { return prepare<Out, T>(k, at); });
  });
}

// Every element of the table looks for its rows.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Type ids = k.call.inputs[0], dy = k.call.inputs[1], out = k.outputs[0];
  const int64_t from_step = dy.axes.back().physical();
  const Strides to = k.out_strides[0];
  const bool adds = at.in.size() > 2;
  const Strides addend = adds ? k.in_strides[2] : to;
  return [=] {
    for (int64_t row = 0; row < out.dim(0); ++row) {
      for (int64_t c = 0; c < out.dim(1); ++c) {
        double sum = 0;
        if (adds) sum = load_element(at.in[2], out.dtype, row * addend[0] + c * addend[1]);
        for (int64_t i = 0; i < ids.num_elements(); ++i) {
          if (load_element(at.in[0], ids.dtype, i) != static_cast<double>(row)) continue;
          sum += load_element(at.in[1], dy.dtype, i * from_step + c);
        }
        store_element(at.out[0], out.dtype, row * to[0] + c * to[1], sum);
      }
    }
  };
}

}  // namespace

extern const OpDef op_embed_grad = {
    .name = "embed_grad",
    .summary = "sums of rows by their ids: the gradient of embed's table",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string ids = std::string("abcdefgh").substr(0, call.inputs[0].rank());
          if (call.inputs.size() < 3) return IndexMap{{ids, ids + "w"}, {".w"}};
          return IndexMap{{ids, ids + "w", ".w"}, {".w"}, ids};  // the addend is added once
        },
    .flops = [](const OpCall& call) { return call.inputs[1].num_elements(); },
    .grad =
        [](GradCall& g) {
          if (g.wants[1]) g.input_grads[1] = g.builder.emit("embed", {g.inputs[0], g.dout()});
          if (g.inputs.size() > 2 && g.wants[2]) g.input_grads[2] = g.dout();
        },
    .says_dtype = true,
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{0, 2}},
    .reference = reference,
    .cpu = kernel,
    .cpu_workspace =
        [](const KernelCall& k) {
          const Type& out = k.outputs[0];
          const bool wide = out.dtype == Dtype::kF32 || out.dtype == Dtype::kF64;
          return wide ? Bytes{0} : Bytes{rows_at_once(k) * out.axes.back().physical() * 4};
        },
    .cuda = embed_grad_cuda,
    .cuda_workspace = embed_grad_cuda_workspace,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 3}, Dtype::kI32), of({2, 3, 5})},
               .attrs = {{"rows", int64_t{4}}},
               .fills = {Sample::Fill::kIds}},
              {.inputs = {of({97}, Dtype::kI32), of({97, 3})},
               .attrs = {{"rows", int64_t{40}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 40},
              {.inputs = {of({700}, Dtype::kI32), of({700, 2})},  // long sums of one row
               .attrs = {{"rows", int64_t{2}}},
               .fills = {Sample::Fill::kIds, Sample::Fill::kOne},
               .ids_below = 2},
              {.inputs = {of({23}, Dtype::kI32), of({23, 40})},  // columns for three threads
               .attrs = {{"rows", int64_t{7}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 7},
              {.inputs = {of({31}, Dtype::kI32), of({31, 3}, Dtype::kBF16)},  // a wide table's
               .attrs = {{"rows", int64_t{4}}, {"dtype", std::string("f32")}},
               .fills = {Sample::Fill::kIds}},
              {.inputs = {of({300}, Dtype::kI32), of({300, 8}), of({9, 8})},
               .attrs = {{"rows", int64_t{9}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 5}};  // rows that nothing is added to
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 3}, Dtype::kI32), of({2, 3})}, .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}), of({5, 3})},
               .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({3, 3})}, .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}, Dtype::kI32)},
               .attrs = {{"rows", int64_t{4}}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3})},
               .attrs = {{"rows", int64_t{4}}, {"dtype", std::string("i32")}}},
              {.inputs = {of({2}, Dtype::kI32), of({2, 3}), of({4, 3}, Dtype::kBF16)},
               .attrs = {{"rows", int64_t{4}}}}};
        },
};

}  // namespace adjoint
