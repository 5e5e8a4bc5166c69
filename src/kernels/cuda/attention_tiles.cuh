// What attention's own kernels share. A block takes a tile of kRows rows (queries, or keys in the
// pass for dk and dv) against tiles of kPartners partners, each a tile of shared memory. A warp
// owns 4 * kHeight of the rows, as four lanes of rows by eight of columns: a thread scores kHeight
// of the rows, every fourth, against every eighth partner, and sums kHeight rows by kSize / 8
// columns of a result in registers. Between the two products, scores pass through shared memory
// within their warp.
//
// A product of h rows by w columns per thread reads h + w vectors of 16 bytes for 4 h w
// multiply-adds, and an SM reads 8 vectors while it does 128: 8 by 8 is balanced, and 8 by 4 reads
// 1.5 times as long as it multiplies, or half that where lanes share what they read.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "device/cuda_check.h"
#include "kernels/cuda/attention_options.cuh"
#include "kernels/cuda/attention_plain.h"

namespace adjoint::attention_tiles {

constexpr int kWarps = 4;  // of a block
constexpr int kRowLanes = 4, kLanes = 8;

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

// Powers of two: what they take is multiplied by log2(e) along with the scale. The GPU's own (2
// ulp) takes one instruction; what would be denormal is zero.
__device__ inline float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ inline double power_of_two(double x) { return exp2(x); }
__device__ inline float log_of_two(float x) { return log2f(x); }
__device__ inline double log_of_two(double x) { return log2(x); }
constexpr double kLog2E = 1.4426950408889634074, kLn2 = 0.69314718055994530942;

struct Shape {
  int length, kv_heads, group, size, value_size, samples;
  bool causal;
  double scale;

  __device__ bool seen(int query, int key) const {
    return query < length && key < length && (!causal || key <= query);
  }
};

// How much of a rectangle of scores is seen.
struct Sight {
  bool any, all;
  __device__ Sight(const Shape& shape, int query, int num_queries, int key, int num_keys)
      : any(query < shape.length && shape.seen(min(query + num_queries, shape.length) - 1, key)),
        all(shape.seen(query, key + num_keys - 1) && query + num_queries <= shape.length) {}
  __device__ Sight(const Shape& shape, const NoOptions&, int query, int num_queries, int key,
                   int num_keys)
      : Sight(shape, query, num_queries, key, num_keys) {}
  // A window hides what is far; segments are not looked at, but hide whatever they do.
  __device__ Sight(const Shape& shape, const SomeOptions& options, int query, int num_queries,
                   int key, int num_keys)
      : Sight(shape, query, num_queries, key, num_keys) {
    const int window = options.window ? options.window : shape.length;
    any = any && query - (key + num_keys - 1) < window && key - (query + num_queries - 1) < window;
    all = all && !options.segments && query + num_queries - 1 - key < window &&
          key + num_keys - 1 - query < window;
  }
};

// The rows of one head of one sample.
template <class T>
struct HeadRows {
  T* data;
  int64_t row_step;
  int size;      // of the head
  bool aligned;  // every row begins and ends at a multiple of 16 bytes
};

template <class T>
struct RowsOf {
  T* data;
  int64_t sample_step, row_step;
  int size;
  bool aligned;

  __device__ HeadRows<T> head(int sample, int head) const {
    return {data + sample * sample_step + static_cast<int64_t>(head) * size, row_step, size,
            aligned};
  }
};

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T at[kCount];
};

// Puts elements into shared memory, or zeros for what is not there. Those that need no widening
// arrive by __pipeline_wait_prior.
template <int kCount, class T, class W>
__device__ void put(W* to, const T* from, bool there) {
  if constexpr (std::is_same_v<T, W>) {
    if (there) {
      __pipeline_memcpy_async(to, from, kCount * sizeof(T));
    } else {
      *reinterpret_cast<Vector<W, kCount>*>(to) = {};
    }
  } else {
    Vector<T, kCount> elements = {};
    if (there) elements = *reinterpret_cast<const Vector<T, kCount>*>(from);
    constexpr int kPart = kCount < 4 ? kCount : 4;
#pragma unroll
    for (int i = 0; i < kCount; i += kPart) {
      Vector<W, kPart> wide;
#pragma unroll
      for (int j = 0; j < kPart; ++j) wide.at[j] = widen(elements.at[i + j]);
      *reinterpret_cast<Vector<W, kPart>*>(to + i) = wide;
    }
  }
}

// A thread's lane of columns, and the first of its rows within the block. Lanes 2 n and 2 n + 1
// share their rows and lanes n and n ^ 2 their columns: each gives shared memory leave to answer
// half a warp at once.
template <int kHeight>
struct ThreadOf {
  int column, warp_row, row;
  __device__ ThreadOf()
      : column((threadIdx.x & 1) | (threadIdx.x >> 1 & 6)),
        warp_row(threadIdx.x / 32 * kRowLanes * kHeight),
        row(warp_row + ((threadIdx.x >> 1 & 1) | (threadIdx.x >> 3 & 2))) {}
};

// Kernels for elements T and heads of at most kSize.
template <class T, int kSize, int kHeight_, int kPartners_>
struct Tiles {
  using Element = T;
  using W = typename WideOf<T>::Type;
  using Thread = ThreadOf<kHeight_>;
  static constexpr int kHeight = kHeight_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kWarpRows = kRowLanes * kHeight;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kPartners = kPartners_;
  static constexpr int kVector = 16 / sizeof(W);
  // Eight rows' vectors of a column, and four rows' eight scores, lie in different banks.
  static constexpr int kStride = kSize + kVector;
  static constexpr int kScoreStride = kPartners + 8;
  static constexpr int kOwn = kRows * kStride;
  static constexpr int kOther = kPartners * kStride;
  static constexpr int kScores = kRows * kScoreStride;
  static constexpr size_t kForwardBytes = (kOwn + 2 * kOther + kScores) * sizeof(W);
  static constexpr size_t kBackwardBytes =
      (2 * kOwn + 2 * kOther + kScores + 2 * kPartners) * sizeof(W);

  // Of an SM: two may take all 255 registers per thread; forward, with one result, can do with the
  // 168 that three leave it, if an H200's shared memory holds three.
  static constexpr size_t kShared = 228 << 10, kReserved = 1 << 10;
  static constexpr int kForwardBlocks = 3 * (kForwardBytes + kReserved) <= kShared ? 3 : 2;
  static constexpr int kBackwardBlocks = 2;

  using Scores = W[kHeight][kPartners / kLanes];
  using Result = W[kHeight][kSize / kLanes];

  // Rows past the end and columns past the head are zeros.
  template <int kCount>
  static __device__ void load(W* tile, HeadRows<const T> from, int first, const Shape& shape) {
    if (from.aligned) {
      load_by<kCount, 16 / sizeof(T)>(tile, from, first, shape);
    } else {
      load_by<kCount, 1>(tile, from, first, shape);
    }
  }
  static __device__ void load_own(W* tile, HeadRows<const T> from, int first, const Shape& shape) {
    load<kRows>(tile, from, first, shape);
  }
  static __device__ void load_other(W* tile, HeadRows<const T> from, int first,
                                    const Shape& shape) {
    load<kPartners>(tile, from, first, shape);
  }

  // Each row i of the thread times factor(i).
  template <class F>
  static __device__ void store(HeadRows<T> to, int first, const Shape& shape, const Thread& thread,
                               const Result& result, const F& factor) {
#pragma unroll
    for (int i = 0; i < kHeight; ++i) {
      const int row = first + thread.row + i * kRowLanes;
      if (row >= shape.length) return;
#pragma unroll
      for (int c = 0; c < kSize / kLanes; c += kVector) {
        const int column = c * kLanes + thread.column * kVector;
        T* at = to.data + row * to.row_step + column;
        Vector<T, kVector> elements;
#pragma unroll
        for (int e = 0; e < kVector; ++e) elements.at[e] = narrow<T>(result[i][c + e] * factor(i));
        if (to.aligned && column < to.size) {
          *reinterpret_cast<Vector<T, kVector>*>(at) = elements;
        } else {
#pragma unroll
          for (int e = 0; e < kVector; ++e)
            if (column + e < to.size) at[e] = elements.at[e];
        }
      }
    }
  }

  // scores[i][j] = rows[4 i] . partners[8 j], counted from the thread's own
  static __device__ void dots(const W* rows, const W* partners, const Thread& thread, int size,
                              Scores& scores) {
    rows += thread.row * kStride;
    partners += thread.column * kStride;
#pragma unroll
    for (auto& row : scores)
#pragma unroll
      for (W& score : row) score = 0;
#pragma unroll 1
    for (int k = 0; k < size; k += kVector) {
      Vector<W, kVector> own[kHeight];
#pragma unroll
      for (int i = 0; i < kHeight; ++i) own[i] = read(rows + i * kRowLanes * kStride + k);
#pragma unroll
      for (int j = 0; j < kPartners / kLanes; ++j) {
        const Vector<W, kVector> other = read(partners + j * kLanes * kStride + k);
#pragma unroll
        for (int e = 0; e < kVector; ++e)
#pragma unroll
          for (int i = 0; i < kHeight; ++i) scores[i][j] += own[i].at[e] * other.at[e];
      }
    }
  }

  // f(i, j, row, partner) of each score of a thread
  template <class F>
  static __device__ void each_score(const Thread& thread, const F& f) {
#pragma unroll
    for (int i = 0; i < kHeight; ++i)
#pragma unroll
      for (int j = 0; j < kPartners / kLanes; ++j)
        f(i, j, thread.row + i * kRowLanes, thread.column + j * kLanes);
  }

  // A thread's scores, where its warp reads them as weights after a __syncwarp.
  static __device__ void share(W* weights, const Thread& thread, const Scores& scores) {
    each_score(thread, [&](int i, int j, int row, int partner) {
      weights[row * kScoreStride + partner] = scores[i][j];
    });
  }

  // result[i] += sum over partners p of weights[4 i][p] * partners[p], in the thread's columns
  static __device__ void add_rows(const W* weights, const W* partners, const Thread& thread,
                                  Result& result) {
    weights += thread.row * kScoreStride;
    partners += thread.column * kVector;
#pragma unroll 1
    for (int p = 0; p < kPartners; p += kVector) {
      Vector<W, kVector> own[kHeight];
#pragma unroll
      for (int i = 0; i < kHeight; ++i) own[i] = read(weights + i * kRowLanes * kScoreStride + p);
#pragma unroll
      for (int k = 0; k < kVector; ++k)
#pragma unroll
        for (int c = 0; c < kSize / kLanes; c += kVector) {
          const Vector<W, kVector> other = read(partners + (p + k) * kStride + c * kLanes);
#pragma unroll
          for (int e = 0; e < kVector; ++e)
#pragma unroll
            for (int i = 0; i < kHeight; ++i) result[i][c + e] += own[i].at[k] * other.at[e];
        }
    }
  }

 private:
  static __device__ Vector<W, kVector> read(const W* at) {
    return *reinterpret_cast<const Vector<W, kVector>*>(at);
  }

  template <int kCount, int kElements>
  static __device__ void load_by(W* tile, HeadRows<const T> from, int first, const Shape& shape) {
    constexpr int kAcross = kSize / kElements;
#pragma unroll 4
    for (int i = threadIdx.x; i < kCount * kAcross; i += kThreads) {
      const int row = i / kAcross, column = i % kAcross * kElements;
      put<kElements>(tile + row * kStride + column,
                     from.data + (first + row) * from.row_step + column,
                     first + row < shape.length && column < from.size);
    }
  }
};

// The options of a head of a sample, or nothing.
template <class K>
__device__ NoOptions options_of(const NoOptions& none, const Shape&, int, int) {
  return none;
}
template <class K>
__device__ HeadOptions<typename K::Element, typename K::W> options_of(const SomeOptions& options,
                                                                      const Shape& shape,
                                                                      int sample, int head) {
  return {options, shape.length, shape.causal, shape.kv_heads * shape.group, sample, head};
}

// Which tile, head and sample a block takes: all heads and samples of one tile, then the next, so
// that tiles that see the most under a causal mask can go first.
struct Block {
  int tile, head, sample;
  __device__ explicit Block(int heads, int samples)
      : tile(blockIdx.x / (heads * samples)),
        head(blockIdx.x % heads),
        sample(blockIdx.x / heads % samples) {}
};

// Joins the values of the eight lanes of a row, which differ in bits 0, 2 and 3.
template <class W, class F>
__device__ W over_row(W value, const F& f) {
  value = f(value, __shfl_xor_sync(0xffffffffu, value, 1));
  value = f(value, __shfl_xor_sync(0xffffffffu, value, 4));
  return f(value, __shfl_xor_sync(0xffffffffu, value, 8));
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
  const int64_t widest = std::max(s.size, s.value_size);
  if (widest > kPlainAttentionSize) {
    fail("attention: a GPU takes heads of up to ", kPlainAttentionSize, ", found ", widest);
  }
  const int64_t tiles = (s.length + 15) / 16;
  if (s.samples * s.kv_heads * s.group * tiles > std::numeric_limits<int>::max()) {
    fail("attention: ", s.samples, " samples of ", s.length, " tokens are too many for one call");
  }
  return {.length = static_cast<int>(s.length),
          .kv_heads = static_cast<int>(s.kv_heads),
          .group = static_cast<int>(s.group),
          .size = static_cast<int>(s.size),
          .value_size = static_cast<int>(s.value_size),
          .samples = static_cast<int>(s.samples),
          .causal = s.causal,
          .scale = s.scale()};
}

template <class T>
RowsOf<T> rows(Rows r, int size) {
  const auto is_aligned = [](int64_t elements) { return elements * sizeof(T) % 16 == 0; };
  const bool aligned = reinterpret_cast<uintptr_t>(r.data) % 16 == 0 && is_aligned(r.sample_step) &&
                       is_aligned(r.row_step) && is_aligned(size);
  return {static_cast<T*>(r.data), r.sample_step, r.row_step, size, aligned};
}

// A thread has room for two results of 64 registers (a double takes two) beside its scores and what
// it reads, and shared memory for the four tiles of backward, in floats twice over. Half of that,
// in rows and partners, where a GPU's blocks have less (99 KiB where others have 163), and for
// types that are exceptions here: cuDNN handles 16 bits, and training in 64 is rare.
template <class T, int kSize, int kPart, int kWords = sizeof(typename WideOf<T>::Type) / 4>
using TilesOf = Tiles<T, kSize, std::max(1, (kSize <= 64 ? 8 : 512 / kSize) / kWords / kPart),
                      (kPart == 1 && kSize * kWords <= 256) ? 32 : 16>;

inline size_t shared_memory_of_block() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "attention");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "attention");
  return bytes;
}

// f(tiles, options): kernels for the call. Those with options take the smaller tiles, of which
// there are enough variants already.
template <class T, int kSize, class F>
PlainLaunch with_tiles(const AttentionShape& shape, const AttentionExtras& extras, const F& f) {
  using Small = TilesOf<T, kSize, 2>;
  if (!shape.is_plain()) return f(Small(), device_options(shape, extras));
  if constexpr (std::is_same_v<T, float>) {
    using Large = TilesOf<T, kSize, 1>;
    if (Large::kBackwardBytes <= shared_memory_of_block()) return f(Large(), NoOptions());
  }
  return f(Small(), NoOptions());
}

template <class T, class F>
PlainLaunch with_size(const AttentionShape& shape, const AttentionExtras& extras, const F& f) {
  const int64_t size = std::max(shape.size, shape.value_size);
  if (size <= 32) return with_tiles<T, 32>(shape, extras, f);
  if (size <= 64) return with_tiles<T, 64>(shape, extras, f);
  if (size <= 128) return with_tiles<T, 128>(shape, extras, f);
  return with_tiles<T, 256>(shape, extras, f);
}
template <class F>
PlainLaunch with_kernels(const AttentionShape& shape, const AttentionExtras& extras, const F& f) {
  switch (shape.dtype) {
    case Dtype::kBF16:
      return with_size<__nv_bfloat16>(shape, extras, f);
    case Dtype::kF16:
      return with_size<__half>(shape, extras, f);
    case Dtype::kF64:
      return with_size<double>(shape, extras, f);
    default:
      CHECK(shape.dtype == Dtype::kF32, "attention is of floats");
      return with_size<float>(shape, extras, f);
  }
}

template <class K>
int num_tiles(const Shape& shape) {
  return (shape.length + K::kRows - 1) / K::kRows;
}

}  // namespace adjoint::attention_tiles
