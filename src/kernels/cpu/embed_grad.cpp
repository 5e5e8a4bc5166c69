#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

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
template <class W, class T>  // float64 is for tests
void add_rows(W* sums, const T* dy, const Rows& r) {
  add_rows_of(sums, dy, r);
}

// 16-bit results are summed in float32, in the workspace: a bf16 sum of ones stops at 256.
template <class Out>
constexpr bool kSumsElsewhere = !std::is_same_v<Out, typename Wide<Out>::type>;

// How many rows are summed before they are rounded to 16 bits: as many as fit the cap, at least
// one.
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

}  // namespace

extern const Kernel cpu_embed_grad = {
    .op = "embed_grad",
    .prepare = kernel,
    .workspace =
        [](const KernelCall& k) {
          const Type& out = k.outputs[0];
          const bool wide = out.dtype == Dtype::kF32 || out.dtype == Dtype::kF64;
          return wide ? Bytes{0} : Bytes{rows_at_once(k) * out.axes.back().physical() * 4};
        },
};

}  // namespace adjoint
