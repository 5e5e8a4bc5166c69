// A warp or a few for each row of the matrix: a lane takes 16 bytes of it at a time, and the same
// elements of every row of x, which all warps share in the first-level cache. Sums are float32
// (float64 of float64), added up over lanes and warps in one order. Rows of x come in passes of at
// most four.
#include <algorithm>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/thin_product.h"
#include "ops/code_linear.h"
#include "ops/expert_linear.h"

namespace adjoint {

namespace {

constexpr int kThreads = 128, kLanesOfWarp = 32, kMostRows = 4;

struct Thin {
  int64_t n, k;
  int64_t a_m, b_n, c_m, c_n;
  const void* scales;  // of codes; null: none
  Dtype scale_dtype;
  int64_t scales_step, group;  // of a row of the matrix; elements that share one
};

// V elements of a row: 16 bytes of it in one read where V is more than 1.
template <class T, int V>
struct Elements {
  T one;

  __device__ void load(const T* from) { one = *from; }
  template <class W>
  __device__ void widen_to(W (&to)[1]) const {
    if constexpr (std::is_same_v<T, int8_t>) {
      to[0] = static_cast<W>(one);
    } else {
      to[0] = widen(one);
    }
  }
};
template <class T, int V>
requires(V > 1) struct Elements<T, V> {
  static_assert(V * sizeof(T) % 16 == 0);
  static constexpr int kReads = V * sizeof(T) / 16, kEach = V / kReads;
  uint4 bits[kReads];

  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kReads; ++i) bits[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  __device__ void widen_to(float (&to)[V]) const {
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      if constexpr (std::is_same_v<T, int8_t>) {
        const uint32_t words[4] = {bits[i].x, bits[i].y, bits[i].z, bits[i].w};
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          to[i * kEach + j] = static_cast<float>(static_cast<int8_t>(words[j / 4] >> j % 4 * 8));
        }
      } else {
        float some[kEach];
        Pack<T>{bits[i]}.widen_to(some);
#pragma unroll
        for (int j = 0; j < kEach; ++j) to[i * kEach + j] = some[j];
      }
    }
  }
};

// B: elements of the matrix, X: of x; V of them at a time, M rows of x; S warps share a row.
template <class B, class X, int V, int M, int S>
__global__ void __launch_bounds__(kThreads) thin(Thin p, const X* x, const B* b, const void* bias,
                                                 const void* addend, void* y, Dtype out_dtype) {
  using W = typename Wide<X>::type;
  constexpr int kRows = kThreads / kLanesOfWarp / S;
  await_earlier();
  const int lane = threadIdx.x % kLanesOfWarp, warp = threadIdx.x / kLanesOfWarp;
  const int share = warp % S;
  const int64_t row = int64_t{blockIdx.x} * kRows + warp / S;
  const B* from = b + row * p.b_n;
  const int64_t end = row < p.n ? p.k : 0;
  W sums[M] = {};
#pragma unroll 4
  for (int64_t at = int64_t{share * kLanesOfWarp + lane} * V; at < end;
       at += S * kLanesOfWarp * V) {
    Elements<B, V> weights;
    weights.load(from + at);
    W w[V];
    weights.widen_to(w);
    const W scale = p.scales
                        ? load_float<W>(p.scales, p.scale_dtype, row * p.scales_step + at / p.group)
                        : W(1);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      Elements<X, V> factors;
      factors.load(x + m * p.a_m + at);
      W of_x[V];
      factors.widen_to(of_x);
      W sum = 0;
#pragma unroll
      for (int i = 0; i < V; ++i) sum += w[i] * of_x[i];
      sums[m] += scale * sum;
    }
  }
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int step = kLanesOfWarp / 2; step > 0; step /= 2) {
      sums[m] += __shfl_xor_sync(~0u, sums[m], step);
    }
  }
  if constexpr (S > 1) {
    __shared__ W shares[kRows][S][M];
    if (lane == 0) {
#pragma unroll
      for (int m = 0; m < M; ++m) shares[warp / S][share][m] = sums[m];
    }
    __syncthreads();
    if (share > 0) return;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int s = 1; s < S; ++s) sums[m] += shares[warp / S][s][m];
    }
  }
  if (lane > 0 || row >= p.n) return;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const int64_t at = m * p.c_m + row * p.c_n;
    W sum = sums[m];
    if (bias) sum += load_float<W>(bias, out_dtype, row);
    if (addend) sum += load_float<W>(addend, out_dtype, at);
    store_float<W>(y, out_dtype, at, sum);
  }
}

struct Operands {
  const void *x, *matrix, *bias, *addend;
  void* y;
  Dtype out_dtype;
};

template <class B, class X, int V, int S>
Launch passes(const Thin& p, int64_t rows, const Operands& o, const Pointers& at) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.n * kLanesOfWarp * S, kThreads));
  const int64_t out_size = size_of(o.out_dtype).count;
  const LaunchPlace place{blocks, kThreads, as_stream(at.stream), at.early};
  return [=] {
    for (int64_t done = 0; done < rows;) {
      const int64_t left = rows - done;
      const auto* from = static_cast<const X*>(o.x) + done * p.a_m;
      const auto* matrix = static_cast<const B*>(o.matrix);
      auto* to = static_cast<char*>(o.y) + done * p.c_m * out_size;
      const char* added =
          o.addend ? static_cast<const char*>(o.addend) + done * p.c_m * out_size : nullptr;
      const auto launch = [&]<int M>() {
        launch_at(place, "a thin product", thin<B, X, V, M, S>, p, from, matrix, o.bias, added, to,
                  o.out_dtype);
        done += M;
      };
      if (left >= kMostRows) {
        launch.template operator()<kMostRows>();
      } else if (left >= 2) {
        launch.template operator()<2>();
      } else {
        launch.template operator()<1>();
      }
    }
  };
}

// So many warps share a row that a lane reads of it about four times, all of them in flight at
// once; measured on an H200 for rows of 2048 to 14336.
template <class B, class X, int V>
Launch shared_passes(const Thin& p, int64_t rows, const Operands& o, const Pointers& at) {
  const int64_t reads = p.k / (V * kLanesOfWarp);
  return reads >= 16 ? passes<B, X, V, 4>(p, rows, o, at) : passes<B, X, V, 2>(p, rows, o, at);
}

}  // namespace

Launch thin_product_cuda(const Product& p, const ProductPointers& places, const Pointers& at) {
  const Thin thin{.n = p.n,
                  .k = p.k,
                  .a_m = p.a_m,
                  .b_n = p.b_n,
                  .c_m = p.c_m,
                  .c_n = p.c_n,
                  .scales = nullptr,
                  .scale_dtype = Dtype::kF32,
                  .scales_step = 0,
                  .group = p.k};
  const Operands operands{.x = places.a,
                          .matrix = places.b,
                          .bias = places.bias,
                          .addend = places.addend,
                          .y = places.c,
                          .out_dtype = p.out_dtype};
  return with_device_type(p.dtype, [&]<class T>() -> Launch {
    constexpr int V = kPackSize<T>;
    if constexpr (!std::is_same_v<T, double>) {
      if (p.k % V == 0 && p.a_m % V == 0 && p.b_n % V == 0 && is_aligned(places.a, 16) &&
          is_aligned(places.b, 16)) {
        return shared_passes<T, T, V>(thin, p.m, operands, at);
      }
    }
    return passes<T, T, 1, 1>(thin, p.m, operands, at);
  });
}

Launch code_linear_cuda(const KernelCall& k, const Pointers& at) {
  const CodeShape s = code_linear_shape(k.call);
  const Type& x = k.call.inputs[0];
  const int64_t rows = x.num_elements() / s.row;
  const Thin thin{.n = s.rows,
                  .k = s.row,
                  .a_m = x.axes.back().physical(),
                  .b_n = s.row,
                  .c_m = k.outputs[0].axes.back().physical(),
                  .c_n = 1,
                  .scales = at.in[2],
                  .scale_dtype = k.call.inputs[2].dtype,
                  .scales_step = s.one_scale ? 0 : s.groups,
                  .group = s.row / s.groups};
  const Operands operands{.x = at.in[0],
                          .matrix = at.in[1],
                          .bias = k.call.inputs.size() > 3 ? at.in[3] : nullptr,
                          .addend = nullptr,
                          .y = at.out[0],
                          .out_dtype = x.dtype};
  return with_device_type(x.dtype, [&]<class X>() -> Launch {
    if constexpr (!std::is_same_v<X, double>) {
      if (s.row % 16 == 0 && thin.a_m % 16 == 0 && thin.group % 16 == 0 &&
          is_aligned(at.in[0], 16) && is_aligned(at.in[1], 16)) {
        return shared_passes<int8_t, X, 16>(thin, rows, operands, at);
      }
    }
    return passes<int8_t, X, 1, 1>(thin, rows, operands, at);
  });
}

namespace {

// A row of results for each choice, or, where they are summed, for each token.
struct ChosenRows {
  int64_t experts, in, out;
  int chosen;
  bool sum, x_each;
  int64_t x_step, y_step, bias_step, w_expert, w_row;
};

// A warp for each column of a row of results: the matrices that the row chose, one after the other.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    thin_chosen(ChosenRows p, const T* x, const T* w, const int32_t* choice, const T* bias, T* y) {
  using W = typename Wide<T>::type;
  await_earlier();
  const int lane = threadIdx.x % kLanesOfWarp;
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanesOfWarp;
  if (column >= p.out) return;
  const int64_t result = blockIdx.y;
  const int64_t first = p.sum ? result * p.chosen : result, end = first + (p.sum ? p.chosen : 1);
  W sum = 0;
  for (int64_t row = first; row < end; ++row) {
    const int64_t expert = clamp_id(choice[row], p.experts);
    const T* from = w + expert * p.w_expert + column * p.w_row;
    const T* mine = x + (p.x_each ? row : row / p.chosen) * p.x_step;
#pragma unroll 4
    for (int64_t at = int64_t{lane} * V; at < p.in; at += kLanesOfWarp * V) {
      Elements<T, V> weights, factors;
      weights.load(from + at);
      factors.load(mine + at);
      W a[V], b[V];
      weights.widen_to(a);
      factors.widen_to(b);
#pragma unroll
      for (int i = 0; i < V; ++i) sum += a[i] * b[i];
    }
  }
#pragma unroll
  for (int step = kLanesOfWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane > 0) return;
  if (bias) {
    sum += W(widen(bias[clamp_id(choice[result], p.experts) * p.bias_step + column]));
  }
  y[result * p.y_step + column] = narrow<T>(sum);
}

}  // namespace

Launch thin_experts_cuda(const KernelCall& k, const Pointers& at) {
  const ExpertLinearShape s = expert_linear_shape(k.call);
  if (s.count() == 0 || s.out == 0) return [] {};
  const Strides w_strides = dense_strides(k.call.inputs[1]);
  const ChosenRows rows{.experts = s.experts,
                        .in = s.in,
                        .out = s.out,
                        .chosen = static_cast<int>(s.chosen),
                        .sum = s.sum,
                        .x_each = s.x_each,
                        .x_step = k.call.inputs[0].axes.back().physical(),
                        .y_step = k.outputs[0].axes.back().physical(),
                        .bias_step = s.bias ? k.call.inputs[3].axes.back().physical() : 0,
                        .w_expert = w_strides[0],
                        .w_row = w_strides[1]};
  const dim3 grid(static_cast<unsigned>(ceil_div(s.out * kLanesOfWarp, kThreads)),
                  static_cast<unsigned>(s.sum ? s.tokens : s.count()));
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const LaunchPlace place{grid, kThreads, as_stream(at.stream), at.early};
  return with_device_type(k.call.inputs[0].dtype, [&]<class T>() -> Launch {
    constexpr int V = std::is_same_v<T, double> ? 1 : kPackSize<T>;
    const auto *x = static_cast<const T*>(at.in[0]), *w = static_cast<const T*>(at.in[1]);
    const auto* bias = s.bias ? static_cast<const T*>(at.in[3]) : nullptr;
    auto* y = static_cast<T*>(at.out[0]);
    const bool packs = s.in % V == 0 && rows.x_step % V == 0 && rows.w_row % V == 0 &&
                       is_aligned(x, 16) && is_aligned(w, 16);
    const auto kernel = packs ? thin_chosen<T, V> : thin_chosen<T, 1>;
    return
        [=] { launch_at(place, "expert_linear of few rows", kernel, rows, x, w, choice, bias, y); };
  });
}

}  // namespace adjoint
