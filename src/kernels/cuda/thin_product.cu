// A warp for each row of the matrix: a lane takes 16 bytes of it at a time, and the same elements
// of every row of x, which all warps share in the first-level cache. Sums are float32, added up
// over the lanes in one order. Rows of x come in passes of at most eight.
#include <algorithm>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/thin_product.h"
#include "ops/code_linear.h"

namespace adjoint {

namespace {

constexpr int kThreads = 128, kLanesOfWarp = 32, kMostRows = 8;

struct Thin {
  int64_t n, k;
  int64_t a_m, b_n, c_m, c_n;
  const void* scales;  // of codes; null: none
  Dtype scale_dtype;
  int64_t scales_step, group;  // of a row of the matrix; elements that share one
};

// V elements at once, widened to float32.
template <int V>
__device__ void load_wide(float (&to)[V], const float* from) {
  if constexpr (V % 4 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = from[i];
  }
}
template <int V, class T>
__device__ void load_wide(float (&to)[V], const T* from) {
  if constexpr (std::is_same_v<T, int8_t>) {
    if constexpr (V == 16) {
      const uint4 bits = *reinterpret_cast<const uint4*>(from);
      const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < V; ++i) {
        to[i] = static_cast<float>(static_cast<int8_t>(words[i / 4] >> i % 4 * 8));
      }
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) to[i] = static_cast<float>(from[i]);
    }
  } else if constexpr (V % 8 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 8) {
      float eight[8];
      Pack<T>{*reinterpret_cast<const uint4*>(from + i)}.widen_to(eight);
#pragma unroll
      for (int j = 0; j < 8; ++j) to[i + j] = eight[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = widen(from[i]);
  }
}

// B: elements of the matrix, X: of x; V of them at a time, M rows of x.
template <class B, class X, int V, int M>
__global__ void __launch_bounds__(kThreads) thin(Thin p, const X* x, const B* b, const void* bias,
                                                 const void* addend, void* y, Dtype out_dtype) {
  const int lane = threadIdx.x % kLanesOfWarp;
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanesOfWarp;
  if (row >= p.n) return;
  const B* from = b + row * p.b_n;
  float sums[M] = {};
#pragma unroll 4
  for (int64_t at = int64_t{lane} * V; at < p.k; at += kLanesOfWarp * V) {
    float w[V];
    load_wide<V>(w, from + at);
    const float scale =
        p.scales ? load_float<float>(p.scales, p.scale_dtype, row * p.scales_step + at / p.group)
                 : 1.0f;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      float factors[V];
      load_wide<V>(factors, x + m * p.a_m + at);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < V; ++i) sum += w[i] * factors[i];
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
  if (lane > 0) return;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const int64_t at = m * p.c_m + row * p.c_n;
    float sum = sums[m];
    if (bias) sum += load_float<float>(bias, out_dtype, row);
    if (addend) sum += load_float<float>(addend, out_dtype, at);
    store_float<float>(y, out_dtype, at, sum);
  }
}

template <class B, class X, int V>
Launch passes(const Thin& p, int64_t rows, const void* x, const void* b, const void* bias,
              const void* addend, void* y, Dtype out_dtype, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.n * kLanesOfWarp, kThreads));
  const int64_t out_size = size_of(out_dtype).count;
  return [=] {
    for (int64_t done = 0; done < rows;) {
      const int64_t left = rows - done;
      const auto* from = static_cast<const X*>(x) + done * p.a_m;
      const auto* matrix = static_cast<const B*>(b);
      auto* to = static_cast<char*>(y) + done * p.c_m * out_size;
      const char* added =
          addend ? static_cast<const char*>(addend) + done * p.c_m * out_size : nullptr;
      const auto launch = [&]<int M>() {
        thin<B, X, V, M>
            <<<blocks, kThreads, 0, stream>>>(p, from, matrix, bias, added, to, out_dtype);
        done += M;
      };
      if (left >= kMostRows) {
        launch.template operator()<kMostRows>();
      } else if (left >= 4) {
        launch.template operator()<4>();
      } else if (left >= 2) {
        launch.template operator()<2>();
      } else {
        launch.template operator()<1>();
      }
    }
    check_launch("a thin product");
  };
}

template <class F>
decltype(auto) with_narrow_type(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kF32:
      return f.template operator()<float>();
    case Dtype::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case Dtype::kF16:
      return f.template operator()<__half>();
    default:
      break;
  }
  throw MachineError("a thin product is not of " + std::string(name(dtype)));
}

}  // namespace

Launch thin_product_cuda(const Product& p, const void* a, const void* b, const void* bias,
                         const void* addend, void* c, void* stream) {
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
  return with_narrow_type(p.dtype, [&]<class T>() -> Launch {
    constexpr int V = kPackSize<T>;
    const bool packs =
        p.k % V == 0 && p.a_m % V == 0 && p.b_n % V == 0 && is_aligned(a, 16) && is_aligned(b, 16);
    return packs
               ? passes<T, T, V>(thin, p.m, a, b, bias, addend, c, p.out_dtype, as_stream(stream))
               : passes<T, T, 1>(thin, p.m, a, b, bias, addend, c, p.out_dtype, as_stream(stream));
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
  const void* bias = k.call.inputs.size() > 3 ? at.in[3] : nullptr;
  return with_narrow_type(x.dtype, [&]<class X>() -> Launch {
    const bool packs = s.row % 16 == 0 && thin.a_m % 16 == 0 && thin.group % 16 == 0 &&
                       is_aligned(at.in[0], 16) && is_aligned(at.in[1], 16);
    return packs ? passes<int8_t, X, 16>(thin, rows, at.in[0], at.in[1], bias, nullptr, at.out[0],
                                         x.dtype, as_stream(at.stream))
                 : passes<int8_t, X, 1>(thin, rows, at.in[0], at.in[1], bias, nullptr, at.out[0],
                                        x.dtype, as_stream(at.stream));
  });
}

}  // namespace adjoint
