// What attention's own kernels share. A block of threads takes a tile of kRows rows (queries, or
// keys in the pass for dk and dv), eight lanes to a row. Against each tile of partners a lane
// scores every eighth partner of its row, the scores go through shared memory, and the lane then
// sums every eighth column of the row's result in registers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "device/cuda_check.h"
#include "ops/attention_plain.h"

namespace adjoint::attention_tiles {

constexpr int kLanes = 8;  // of a row; a warp has four rows

template <class T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};

template <class T>
__device__ typename WideOf<T>::Type widen(T value) {
  return static_cast<typename WideOf<T>::Type>(value);
}
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <class T, class W>
__device__ T narrow(W value) {
  return static_cast<T>(value);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16, float>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half narrow<__half, float>(float value) {
  return __float2half_rn(value);
}

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

struct Shape {
  int length, kv_heads, group, size, samples;
  bool causal;
  double scale;
};

template <class T>
struct RowsOf {
  T* data;
  int64_t sample_step, row_step;

  __device__ T* head(int sample, int head, int size) const {
    return data + sample * sample_step + static_cast<int64_t>(head) * size;
  }
};

// Kernels for elements T and heads of at most kSize.
template <class T, int kSize>
struct Tiles {
  using W = typename WideOf<T>::Type;
  using Element = T;
  static constexpr int kRows = kSize <= 128 ? 32 : 16;  // so that four tiles of floats fit
  static constexpr int kThreads = kRows * kLanes;
  static constexpr int kStride = kSize + 1;  // odd: rows of a column lie in different banks
  static constexpr int kTile = kRows * kStride;
  static constexpr int kColumns = kSize / kLanes;   // of a result's row, per lane
  static constexpr int kPartners = kRows / kLanes;  // scored at once, per lane
  static constexpr int kScoreStride = kRows + 1;
  static constexpr int kScores = kRows * kScoreStride;
  static constexpr size_t kForwardBytes = (2 * kTile + kScores) * sizeof(W);
  static constexpr size_t kBackwardBytes = (4 * kTile + 2 * kScores + 2 * kRows) * sizeof(W);

  // Rows past the end and columns past the head are zeros.
  static __device__ void load(W* tile, const T* head, int64_t row_step, int first,
                              const Shape& shape) {
    for (int i = threadIdx.x; i < kRows * kSize; i += kThreads) {
      const int row = i / kSize, column = i % kSize;
      const bool there = first + row < shape.length && column < shape.size;
      tile[row * kStride + column] = there ? widen(head[(first + row) * row_step + column]) : W(0);
    }
  }

  static __device__ void store(T* head, int64_t row_step, int row, const Shape& shape, int lane,
                               const W* values) {
    if (row >= shape.length) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + c * kLanes;
      if (column < shape.size) head[row * row_step + column] = narrow<T>(values[c]);
    }
  }

  // dots[j] = row . partners[lane + 8 j]
  static __device__ void dots(const W* row, const W* partners, int lane, int size, W* dots) {
#pragma unroll
    for (int j = 0; j < kPartners; ++j) dots[j] = 0;
    for (int i = 0; i < size; ++i) {
      const W x = row[i];
#pragma unroll
      for (int j = 0; j < kPartners; ++j)
        dots[j] += x * partners[(lane + j * kLanes) * kStride + i];
    }
  }

  // sums[c] += sum over partners of weights[p] * partners[p][lane + 8 c]
  static __device__ void add_rows(const W* weights, const W* partners, int lane, W* sums) {
    for (int p = 0; p < kRows; ++p) {
      const W weight = weights[p];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        sums[c] += weight * partners[p * kStride + lane + c * kLanes];
    }
  }
};

// Which tile, head and sample a block takes: all heads and samples of one tile, then the next, so
// that tiles that see the most under a causal mask can go first.
struct Place {
  int tile, head, sample;
  __device__ explicit Place(int heads, int samples)
      : tile(blockIdx.x / (heads * samples)),
        head(blockIdx.x % heads),
        sample(blockIdx.x / heads % samples) {}
};

template <class W>
__device__ W largest_of_row(W value) {
  for (int step = kLanes / 2; step; step /= 2)
    value = max(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
template <class W>
__device__ W sum_of_row(W value) {
  for (int step = kLanes / 2; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

inline void check_launch() { check_cuda(cudaGetLastError(), "attention"); }

// Kernels may take more shared memory than the 48 KiB that need no asking.
template <class Kernel>
void allow(Kernel* kernel, size_t bytes) {
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess)
    throw MachineError(join_parts("attention wants ", bytes,
                                  " bytes of shared memory: ", cudaGetErrorString(status)));
}

inline Shape device_shape(const AttentionShape& s) {
  if (s.size > kPlainAttentionSize) {
    fail("attention: a GPU takes heads of up to ", kPlainAttentionSize, ", found ", s.size);
  }
  const int64_t tiles = (s.length + 15) / 16;
  if (s.samples * s.kv_heads * s.group * tiles > std::numeric_limits<int>::max()) {
    fail("attention: ", s.samples, " samples of ", s.length, " tokens are too many for one call");
  }
  return {.length = static_cast<int>(s.length),
          .kv_heads = static_cast<int>(s.kv_heads),
          .group = static_cast<int>(s.group),
          .size = static_cast<int>(s.size),
          .samples = static_cast<int>(s.samples),
          .causal = s.causal,
          .scale = s.scale()};
}

template <class T>
RowsOf<T> rows(Rows r) {
  return {static_cast<T*>(r.data), r.sample_step, r.row_step};
}

template <class T, class F>
PlainLaunch with_size(int64_t size, const F& f) {
  if (size <= 32) return f(Tiles<T, 32>());
  if (size <= 64) return f(Tiles<T, 64>());
  if (size <= 128) return f(Tiles<T, 128>());
  return f(Tiles<T, 256>());
}
template <class F>
PlainLaunch with_kernels(const AttentionShape& shape, const F& f) {
  switch (shape.dtype) {
    case Dtype::kBF16:
      return with_size<__nv_bfloat16>(shape.size, f);
    case Dtype::kF16:
      return with_size<__half>(shape.size, f);
    case Dtype::kF64:
      return with_size<double>(shape.size, f);
    default:
      CHECK(shape.dtype == Dtype::kF32, "attention is of floats");
      return with_size<float>(shape.size, f);
  }
}

template <class K>
int num_tiles(const Shape& shape) {
  return (shape.length + K::kRows - 1) / K::kRows;
}

}  // namespace adjoint::attention_tiles
