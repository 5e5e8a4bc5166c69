// The gradient of a row's logits, 16 bytes at a time. Every element is read by the thread that
// writes it, so the result may take the logits' place.
#pragma once
#include "kernels/cuda/cross_entropy.cuh"

namespace adjoint {

// A row from its first 16-byte boundary on: single elements, packs, single elements.
template <class T>
struct RowParts {
  int packs, first, past;  // packs are elements [first, past)

  __device__ RowParts(const T* row, int size, bool packed) {
    const auto over = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    first = packed ? ::min(size, (kPackSize<T> - over) % kPackSize<T>) : size;
    packs = (size - first) / kPackSize<T>;
    past = first + packs * kPackSize<T>;
  }
};

// The gradient of one row's logits. Near certainty p - 1 must be taken before p is rounded.
template <class W, bool kOptions>
struct RowGradient {
  W lse, scale;
  int target;
  RowOptions<W> options;

  __device__ W hit(W logit) const {
    if constexpr (!kOptions) {
      return scale * ::expm1(logit - lse);
    } else {
      const W u = options.capped(logit);
      const W certain = ::expm1(u - lse) + (options.smoothing - options.share);
      return bent(u, ::fma(product(2 * options.z, lse), exp_of(u - lse), certain));
    }
  }
  __device__ W missed(W logit) const {
    if constexpr (!kOptions) {
      return scale * exp_of(logit - lse);
    } else {
      const W u = options.capped(logit), grown = ::fma(2 * options.z, lse, W{1});
      return bent(u, ::fma(exp_of(u - lse), grown, -options.share));
    }
  }

 private:
  // Through the cap, whose slope is 1 - tanh^2.
  __device__ W bent(W u, W slope) const {
    const W bend = product(u, options.per_cap);
    return product(product(scale, slope), ::fma(-bend, bend, W{1}));
  }
};

// Streamed: what is written makes room in the second-level cache before what will be read again.
// What is kept are the first packs of a row that begins at a 16-byte boundary.
template <bool kStreamed, bool kOptions, class T, class W = typename Wide<T>::type>
__device__ void write_row(const RowGradient<W, kOptions>& gradient, const T* x, T* y, int size,
                          KeptPacks kept = {}) {
  // Both begin at the same place of 16 bytes, or neither is taken by packs.
  const bool packed = reinterpret_cast<uintptr_t>(x) % 16 == reinterpret_cast<uintptr_t>(y) % 16;
  const RowParts<T> parts(x, size, packed);
  const int step = blockDim.x;
  const auto one = [&](int i) {
    const W logit = widen(x[i]);
    y[i] = narrow<T>(i == gradient.target ? gradient.hit(logit) : gradient.missed(logit));
  };
  for (int i = threadIdx.x; i < parts.first; i += step) one(i);
  const auto* from = reinterpret_cast<const Pack<T>*>(x + parts.first);
  auto* to = reinterpret_cast<Pack<T>*>(y + parts.first);
  for (int i = threadIdx.x; i < parts.packs; i += kPacksAtOnce * step) {
    Pack<T> loaded[kPacksAtOnce];
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      const int at = i + p * step;
      if (at < kept.count) {
        loaded[p].bits = kept.at[at];
      } else if (at < parts.packs) {
        loaded[p] = from[at];
      }
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      if (i + p * step >= parts.packs) break;
      const int column = parts.first + (i + p * step) * kPackSize<T>;
      W x_of[kPackSize<T>], y_of[kPackSize<T>];
      loaded[p].widen_to(x_of);
#pragma unroll
      for (int k = 0; k < kPackSize<T>; ++k) y_of[k] = gradient.missed(x_of[k]);
      if (gradient.target >= column && gradient.target < column + kPackSize<T>) {
        W logit = x_of[0];
#pragma unroll
        for (int k = 1; k < kPackSize<T>; ++k) {
          if (column + k == gradient.target) logit = x_of[k];
        }
        const W hit = gradient.hit(logit);  // written down once: it is long
#pragma unroll
        for (int k = 0; k < kPackSize<T>; ++k) {
          if (column + k == gradient.target) y_of[k] = hit;
        }
      }
      const Pack<T> made = Pack<T>::narrowed(y_of);
      if constexpr (kStreamed) {
        __stcs(&to[i + p * step].bits, made.bits);
      } else {
        to[i + p * step] = made;
      }
    }
  }
  for (int i = parts.past + threadIdx.x; i < size; i += step) one(i);
}

template <class T>
__device__ void clear_row(T* y, int size) {
  const RowParts<T> parts(y, size, true);
  for (int i = threadIdx.x; i < parts.first; i += blockDim.x) y[i] = narrow<T>(0);
  auto* to = reinterpret_cast<Pack<T>*>(y + parts.first);
  for (int i = threadIdx.x; i < parts.packs; i += blockDim.x) to[i] = {make_uint4(0, 0, 0, 0)};
  for (int i = parts.past + threadIdx.x; i < size; i += blockDim.x) y[i] = narrow<T>(0);
}

struct Floats {
  const void* data;
  Dtype dtype;
};

}  // namespace adjoint
