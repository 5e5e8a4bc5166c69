#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/cpu/body_loops.h"
#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/row_numbers.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// y may be x.
ADJOINT_SIMD void scaled_softmax(float* y, const float* x, int64_t n, float lse, float scale) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) y[i] = scale * softmax_exp(x[i] - lse);
}
template <class T>
void scaled_softmax(T* y, const T* x, int64_t n, float lse, float scale) {
  float block[kClassBlock];
  for (int64_t first = 0; first < n; first += kClassBlock) {
    const int64_t size = std::min(kClassBlock, n - first);
    gather_any(block, x, kNarrow<T>, first, 1, size);
    scaled_softmax(block, block, size, lse, scale);
    scatter_any(y, kNarrow<T>, block, first, 1, size);
  }
}
void scaled_softmax(double* y, const double* x, int64_t n, double lse, double scale) {
  for (int64_t i = 0; i < n; ++i) y[i] = scale * std::exp(x[i] - lse);
}

// What a row's options make of its gradient, a block at a time.
template <class W>
struct BlockGradient {
  W lse, scale, share, cap;  // share and cap: 0 for none
};
ADJOINT_SIMD void finish_block(float* y, const float* u, int64_t n,
                               const BlockGradient<float>& row) {
  const float less = row.scale * row.share, per_cap = row.cap > 0 ? 1.0f / row.cap : 0.0f;
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {
    const float bend = u[i] * per_cap;
    y[i] = (y[i] - less) * (1.0f - bend * bend);
  }
}
void finish_block(double* y, const double* u, int64_t n, const BlockGradient<double>& row) {
  const double per_cap = row.cap > 0 ? 1 / row.cap : 0;
  for (int64_t i = 0; i < n; ++i) {
    const double bend = u[i] * per_cap;
    y[i] = (y[i] - row.scale * row.share) * (1 - bend * bend);
  }
}

// The gradient of a row's logits with options. The capped logits of a block are kept beside its
// gradient, which may take the place of the logits as they came.
template <class T>
void write_with_options(T* y, const T* x, const CrossEntropyRows& rows, int64_t target, double lse,
                        double scale) {
  using W = typename Wide<T>::type;
  const CrossEntropyOptions& o = rows.options;
  const BlockGradient<W> row{.lse = static_cast<W>(lse),
                             .scale = static_cast<W>(scale),
                             .share = static_cast<W>(rows.share()),
                             .cap = static_cast<W>(o.cap)};
  W u[kClassBlock], made[kClassBlock];
  for (int64_t first = 0; first < rows.classes; first += kClassBlock) {
    const int64_t size = std::min(kClassBlock, rows.classes - first);
    if constexpr (std::is_same_v<T, W>) {
      std::copy_n(x + first, size, u);
    } else {
      gather_any(u, x, kNarrow<T>, first, 1, size);
    }
    if (o.cap > 0) soft_cap(u, u, size, row.cap);
    const double grown = 1 + 2 * o.z * lse;
    scaled_softmax(made, u, size, row.lse, static_cast<W>(scale * grown));
    if (const int64_t at = target - first; at >= 0 && at < size) {
      // Near certainty p - 1 must be taken before anything is rounded.
      const double above = static_cast<double>(u[at]) - lse;
      const double hit = std::expm1(above) + 2 * o.z * lse * std::exp(above) + o.smoothing;
      made[at] = static_cast<W>(scale * hit);
    }
    if (o.smoothing > 0 || o.cap > 0) finish_block(made, u, size, row);
    if constexpr (std::is_same_v<T, W>) {
      std::copy_n(made, size, y + first);
    } else {
      scatter_any(y, kNarrow<T>, made, first, 1, size);
    }
  }
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const CrossEntropyRows rows(k.call, k.in_strides[0]);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Dtype lse_dtype = k.call.inputs[2].dtype, scale_dtype = k.call.inputs[3].dtype;
  const void *lse = at.in[2], *dsum = at.in[3];
  const RowNumbers log_sums(k.call.inputs[2]);
  auto* out = static_cast<T*>(at.out[0]);
  CHECK(k.out_strides[0] == dense_strides(k.outputs[0]), "the gradient of logits is dense");
  const int64_t to_step = k.outputs[0].axes.back().physical();  // logits may have other padding
  return [=] {
    const double scale = load_element(dsum, scale_dtype, 0);
    parallel_for(rows.count, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        T* y = out + r * to_step;
        if (targets[r] == rows.ignore) {
          std::fill(y, y + rows.classes, T(0.0f));
          continue;
        }
        using W = typename Wide<T>::type;
        const T* x = logits + r * rows.step;
        const int64_t target = std::clamp<int64_t>(targets[r], 0, rows.classes - 1);
        const double row_lse = load_element(lse, lse_dtype, log_sums.at(r));
        if (rows.options.any()) {
          write_with_options(y, x, rows, target, row_lse, scale);
          continue;
        }
        // In 16 bits, p - 1 must be computed before p is rounded, or nothing would be left of it
        // near 1.
        const double hit = scale * (std::exp(static_cast<double>(x[target]) - row_lse) - 1);
        scaled_softmax(y, x, rows.classes, static_cast<W>(row_lse), static_cast<W>(scale));
        if constexpr (std::is_same_v<T, W>) {
          y[target] -= static_cast<W>(scale);
        } else {
          y[target] = T(static_cast<float>(hit));
        }
      }
    });
  };
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  return with_float_type(k.call.inputs[0].dtype, [&]<class T>() { return prepare<T>(k, at); });
}

}  // namespace

extern const Kernel cpu_cross_entropy_grad = {
    .op = "cross_entropy_grad",
    .prepare = kernel,
};

}  // namespace adjoint
