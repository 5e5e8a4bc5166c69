// What attention's tensor-core kernels share: sizes of tiles, and how the options are applied to
// what a warp holds. Options are asked for once per tile and not per score, so that a call pays for
// those that it has.
#pragma once
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tensor.h"

namespace adjoint::attention_tiles {

constexpr int kTensorWarps = 4, kTensorThreads = 32 * kTensorWarps;

// Heads of at most kSize, values of at most kValue. A block takes kRows queries forward, and
// kBackRows of either kind backward, against kPartners or kBackPartners of the other. Two strips of
// rows per warp halve what is read of keys and values, where registers hold their results.
template <class T_, int kSize_, int kValue_>
struct TensorTiles {
  using T = T_;
  static constexpr int kSize = kSize_, kValue = kValue_;
  static constexpr int kTall = kSize <= 128 ? 2 : 1;
  static constexpr int kRows = 16 * kTall * kTensorWarps;
  static constexpr int kPartners = kSize <= 128 ? 64 : 32;
  static constexpr int kBackRows = 16 * kTensorWarps;
  static constexpr int kBackPartners = 32;
  // Both gradients of keys and values in one pass, unless registers do not hold them.
  static constexpr bool kTogether = kSize + kValue <= 320;

  static constexpr size_t kForwardBytes =
      (kRows * kSize + 2 * kPartners * (kSize + kValue)) * sizeof(T);
  static constexpr size_t kBackwardBytes =
      (kBackRows + 2 * kBackPartners) * (kSize + kValue) * sizeof(T);
};

// tanh by one exponential: off by no more than 2^-22 of 1, which is what a cap multiplies.
__device__ inline float quick_tanh(float x) {
  const float e = power_of_two(fabsf(x) * float(2 * kLog2E));
  return copysignf(1 - 2 / (e + 1), x);
}

template <class T>
using OptionsOf = HeadOptions<T, float>;

// Products become logits of base 2, hidden ones far below. `slopes` of the cap, where there is one
// and somebody wants them. `kTurned`: rows are keys and columns queries.
template <bool kTurned, int kTall, int kWidth, class T>
__device__ void to_logits(const OptionsOf<T>& of_head, bool all_seen, int first_row,
                          int first_column, Sums<kTall, kWidth>& x, Sums<kTall, kWidth>* slopes) {
  const auto each = [&](const auto& f) {
    each_sum<kTall, kWidth>(first_row, [&](int t, int n, int e, int row, int column) {
      const int other = first_column + column;
      f(x[t][n][e], kTurned ? other : row, kTurned ? row : other, t, n, e);
    });
  };
  if (of_head.cap > 0) {
    const float inside = of_head.scale * of_head.one_by_cap, outside = of_head.cap * float(kLog2E);
    each([&](float& value, int, int, int t, int n, int e) {
      const float tanh = quick_tanh(value * inside);
      value = outside * tanh;
      if (slopes) (*slopes)[t][n][e] = 1 - tanh * tanh;
    });
  } else {
    const float scale = of_head.scale * float(kLog2E);
    each([&](float& value, int, int, int, int, int) { value *= scale; });
  }
  if (of_head.slope != 0) {
    const float slope = of_head.slope * float(kLog2E);
    each([&](float& value, int query, int key, int, int, int) {
      value -= slope * float(abs(query - key));
    });
  }
  if (of_head.bias) {
    each([&](float& value, int query, int key, int, int, int) {
      const int entry = min(max(query - key, 0), of_head.entries - 1);
      value += float(read_element<T>(of_head.bias, entry * of_head.bias_step)) * float(kLog2E);
    });
  }
  if (!all_seen) {
    each([&](float& value, int query, int key, int, int, int) {
      if (!of_head.sees(query, key)) value = kHidden;
    });
  }
}

// The tile that comes next and the one that is there take turns.
template <class T>
struct Stages {
  T* memory;
  int elements;
  __device__ T* at(int tile) const { return memory + tile % 2 * elements; }
};

// f(tiles): the kernels for a call that tensor_takes.
template <class T, class F>
PlainLaunch with_tensor_sizes(const AttentionShape& s, const F& f) {
  const int64_t widest = std::max(s.size, s.value_size);
  if (widest <= 64) return f(TensorTiles<T, 64, 64>());
  if (widest <= 128) return f(TensorTiles<T, 128, 128>());
  if (s.size <= 192 && s.value_size <= 128) return f(TensorTiles<T, 192, 128>());
  return f(TensorTiles<T, 256, 256>());
}
template <class F>
PlainLaunch with_tensor_tiles(const AttentionShape& s, const F& f) {
  if (s.dtype == Dtype::kF16) return with_tensor_sizes<__half>(s, f);
  CHECK(s.dtype == Dtype::kBF16, "tensor cores multiply 16-bit floats");
  return with_tensor_sizes<__nv_bfloat16>(s, f);
}

}  // namespace adjoint::attention_tiles
