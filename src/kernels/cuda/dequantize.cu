// Codes and scales are dense, and a group never crosses a row: element i has scale i / group. Eight
// elements of one group are written at once where groups are whole eights.
#include <algorithm>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "ops/quantize.h"

namespace adjoint {

namespace {

struct Levels {
  float of[16];
};

struct Codes {
  CodeFormat::Kind kind;
  int64_t count, group;  // elements
  Dtype scales;
};

constexpr int kThreads = 256;

// N elements, whose codes are one word.
template <bool kPacked, int N, class T, class Word>
__global__ void __launch_bounds__(kThreads)
    expand(Codes codes, Levels levels, const Word* words, const void* scales, T* out) {
  using W = typename Wide<T>::type;
  __shared__ float
      level[16];  // in shared memory sixteen threads may look up sixteen levels at once
  if (kPacked && threadIdx.x < 16) level[threadIdx.x] = levels.of[threadIdx.x];
  if (kPacked) __syncthreads();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < codes.count / N; i += step) {
    const W scale = load_float<W>(scales, codes.scales, i * N / codes.group);
    const Word word = words[i];
    W y[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (kPacked) {
        y[k] = scale * static_cast<W>(level[word >> 4 * k & 15]);
      } else {
        y[k] = scale * static_cast<W>(static_cast<int8_t>(word >> 8 * k));
      }
    }
    if constexpr (N % kPackSize<T> == 0) {
#pragma unroll
      for (int p = 0; p < N; p += kPackSize<T>) {
        W part[kPackSize<T>];
#pragma unroll
        for (int k = 0; k < kPackSize<T>; ++k) part[k] = y[p + k];
        reinterpret_cast<Pack<T>*>(out + i * N)[p / kPackSize<T>] = Pack<T>::narrowed(part);
      }
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) out[i * N + k] = narrow<T>(y[k]);
    }
  }
}

template <bool kPacked, int N, class T, class Word>
Launch prepare(const Codes& codes, const Pointers& at) {
  Levels levels;
  const auto& known = adjoint::levels(codes.kind);
  std::copy(known.begin(), known.end(), levels.of);
  const auto* words = static_cast<const Word*>(at.in[0]);
  const void* scales = at.in[1];
  auto* out = static_cast<T*>(at.out[0]);
  const int64_t wanted = ceil_div(codes.count / N, kThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(wanted, 1 << 20));
  return [=, stream = as_stream(at.stream)] {
    expand<kPacked, N><<<blocks, kThreads, 0, stream>>>(codes, levels, words, scales, out);
    check_launch("dequantize");
  };
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const int64_t count = k.outputs[0].num_elements();
  if (count == 0) return [] {};
  const Type& scales = k.call.inputs[1];
  const CodeShape shape = code_shape(k.call);
  const Codes codes{shape.kind, count, count / scales.num_elements(), scales.dtype};
  const bool eights = codes.group % 8 == 0 && is_aligned(at.in[0], 8) && is_aligned(at.out[0], 16);
  if (shape.packed) {
    return eights ? prepare<true, 8, T, uint32_t>(codes, at)
                  : prepare<true, 2, T, uint8_t>(codes, at);
  }
  return eights ? prepare<false, 8, T, uint64_t>(codes, at)
                : prepare<false, 1, T, uint8_t>(codes, at);
}

}  // namespace

Launch dequantize_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.outputs[0].dtype, [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
