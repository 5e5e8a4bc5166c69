// A row's log-sum as the threads of a block find it. Each row is read once: every thread keeps the
// highest logit that it has seen and the sum of exponents below it, and rescales the sum when a
// higher one comes.
#pragma once
#include "kernels/cuda/cross_entropy.cuh"

namespace adjoint {

template <class W, bool kOptions>
struct LogSum {
  W highest = -INFINITY, sum = 0;
  W logits = 0;  // their sum, for smoothed targets; without options it stays 0

  template <int N>
  __device__ void add(const W (&x)[N]) {
    W most = x[0];
#pragma unroll
    for (int k = 1; k < N; ++k) most = ::max(most, x[k]);
    if (most > highest) {
      sum = product(sum, exp_of(highest - most));
      highest = most;
    }
    const W from = shift();
    W sums[2] = {0, 0};  // side by side, so that no addition waits for the one before it
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k % 2] += exp_of(x[k] - from);
    sum += sums[0] + sums[1];
    if constexpr (kOptions) {
      W plain = x[0];
#pragma unroll
      for (int k = 1; k < N; ++k) plain += x[k];
      logits += plain;
    }
  }
  __device__ void add(const LogSum& other) {
    const W mine = highest;
    highest = ::max(mine, other.highest);
    // Which product is rounded by itself is said here, not left to each kernel's compilation.
    sum = ::fma(sum, exp_of(mine - shift()), product(other.sum, exp_of(other.highest - shift())));
    if constexpr (kOptions) logits += other.logits;
  }
  // Below a row of nothing but -inf there is no highest to take away.
  __device__ W shift() const { return highest == -INFINITY ? W{0} : highest; }

  __device__ W lse() const { return highest + ::log(sum); }
  // Of a row that counts, by the logit of its target.
  __device__ W loss(W logit, const RowOptions<W>& options) const {
    if constexpr (!kOptions) {
      return (highest - logit) + ::log(sum);
    } else {
      const W missed = (highest - options.capped(logit)) + ::log(sum), all = lse();
      const W smooth = options.smoothing > 0
                           ? ::fma(options.smoothing, all, -product(options.share, logits))
                           : W{0};
      const W square = product(options.z, product(all, all));
      return ::fma(1 - options.smoothing, missed, smooth) + square;
    }
  }

  __device__ void add_warp() {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      LogSum other{__shfl_xor_sync(~0u, highest, lanes), __shfl_xor_sync(~0u, sum, lanes)};
      if constexpr (kOptions) other.logits = __shfl_xor_sync(~0u, logits, lanes);
      add(other);
    }
  }
};

template <bool kAligned, class T>
__device__ Pack<T> load_pack(const T* from) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const Pack<T>*>(from);
  } else {
    T x[kPackSize<T>];
#pragma unroll
    for (int k = 0; k < kPackSize<T>; ++k) x[k] = from[k];
    Pack<T> pack;
    memcpy(&pack, x, sizeof pack);
    return pack;
  }
}

// One thread's share. Which thread takes which classes depends on their number alone, not on where
// the row begins: a row gives the same bits wherever a plan or a split of the batch lays it.
template <bool kAligned, bool kOptions, class T, class W = typename Wide<T>::type>
__device__ LogSum<W, kOptions> log_sum(const T* row, int size, const RowOptions<W>& options,
                                       KeptPacks kept) {
  const int step = blockDim.x, packs = size / kPackSize<T>;
  LogSum<W, kOptions> total;
  // The next packs are on their way while these are added.
  Pack<T> loaded[kPacksAtOnce], next[kPacksAtOnce];
  const auto load = [&](int i, Pack<T>(&to)[kPacksAtOnce]) {
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      const int at = i + p * step;
      if (at < packs) to[p] = load_pack<kAligned>(row + at * kPackSize<T>);
    }
  };
  load(threadIdx.x, loaded);
  for (int i = threadIdx.x; i < packs; i += kPacksAtOnce * step) {
    load(i + kPacksAtOnce * step, next);
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      if (i + p * step >= packs) break;
      if (kAligned && i + p * step < kept.count) kept.at[i + p * step] = loaded[p].bits;
      W x[kPackSize<T>];
      loaded[p].widen_to(x);
      if constexpr (kOptions) {
#pragma unroll
        for (int k = 0; k < kPackSize<T>; ++k) x[k] = options.capped(x[k]);
      }
      total.add(x);
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) loaded[p] = next[p];
  }
  for (int i = packs * kPackSize<T> + threadIdx.x; i < size; i += step) {
    const W x = widen(row[i]);
    total.add({kOptions ? options.capped(x) : x});
  }
  return total;
}

// All shares of the threads' row, in its first thread; the others have no use for what they get.
template <bool kOptions, class T, class W = typename Wide<T>::type>
__device__ LogSum<W, kOptions> row_log_sum(const T* row, int size, const RowOptions<W>& options,
                                           KeptPacks kept = {}) {
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  LogSum<W, kOptions> total = aligned ? log_sum<true, kOptions>(row, size, options, kept)
                                      : log_sum<false, kOptions>(row, size, options, {});
  total.add_warp();
  if (blockDim.x == 32) return total;  // rows that share a block are a warp each
  __shared__ W highest_of[kMostRowThreads / 32], sum_of[kMostRowThreads / 32];
  __shared__ W logits_of[kOptions ? kMostRowThreads / 32 : 1];
  if (threadIdx.x % 32 == 0) {
    highest_of[threadIdx.x / 32] = total.highest;
    sum_of[threadIdx.x / 32] = total.sum;
    if constexpr (kOptions) logits_of[threadIdx.x / 32] = total.logits;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return total;
  total = {};
  if (threadIdx.x < blockDim.x / 32) {
    total = {highest_of[threadIdx.x], sum_of[threadIdx.x]};
    if constexpr (kOptions) total.logits = logits_of[threadIdx.x];
  }
  total.add_warp();
  return total;
}

// Adds the losses of the rows that count, in an order that their number fixes.
template <class W>
void add_losses(const LogitRows& rows, const int32_t* targets, const W* losses, W* sum, W* count,
                cudaStream_t stream);

}  // namespace adjoint
