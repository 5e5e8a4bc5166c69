// Each row is read once: every thread keeps the highest logit that it has seen and the sum of
// exponents below it, and rescales the sum when a higher one comes. Losses of rows are kept and
// then added by one block, in an order that the number of rows fixes.
#include "ops/cross_entropy.cuh"
#include "ops/cuda_kernels.h"

namespace adjoint {

namespace {

// Rounded by itself, whatever is done with it: aligned rows and others must round alike.
__device__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ double product(double a, double b) { return __dmul_rn(a, b); }

template <class W>
struct LogSum {
  W highest = -INFINITY, sum = 0;

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
  }
  __device__ void add(const LogSum& other) {
    const W mine = highest;
    highest = ::max(mine, other.highest);
    sum = sum * exp_of(mine - shift()) + other.sum * exp_of(other.highest - shift());
  }
  // Below a row of nothing but -inf there is no highest to take away.
  __device__ W shift() const { return highest == -INFINITY ? W{0} : highest; }

  __device__ void add_warp() {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      add(LogSum{__shfl_xor_sync(~0u, highest, lanes), __shfl_xor_sync(~0u, sum, lanes)});
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

// Which thread takes which classes depends on their number alone, not on where the row begins: a
// row gives the same bits wherever a plan or a split of the batch lays it.
template <bool kAligned, class T, class W = typename Wide<T>::type>
__device__ LogSum<W> log_sum(const T* row, int size) {
  const int step = blockDim.x, packs = size / kPackSize<T>;
  LogSum<W> total;
  for (int i = threadIdx.x; i < packs; i += kPacksAtOnce * step) {
    Pack<T> loaded[kPacksAtOnce];
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      const int at = i + p * step;
      if (at < packs) loaded[p] = load_pack<kAligned>(row + at * kPackSize<T>);
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      if (i + p * step >= packs) break;
      W x[kPackSize<T>];
      loaded[p].widen_to(x);
      total.add(x);
    }
  }
  for (int i = packs * kPackSize<T> + threadIdx.x; i < size; i += step) total.add({widen(row[i])});
  return total;
}

template <class T, class W = typename Wide<T>::type>
__global__ void __launch_bounds__(kMostRowThreads, kRowsInFlight)
    row_losses(LogitRows rows, const T* logits, const int32_t* targets, W* lse, W* losses) {
  // Rows that share a block are a warp each, so none is waited for below.
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const T* row = logits + r * rows.step;
  const auto size = static_cast<int>(rows.classes);
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  LogSum<W> total = aligned ? log_sum<true>(row, size) : log_sum<false>(row, size);
  total.add_warp();
  if (blockDim.x > 32) {
    __shared__ W highest_of[kMostRowThreads / 32], sum_of[kMostRowThreads / 32];
    if (threadIdx.x % 32 == 0) {
      highest_of[threadIdx.x / 32] = total.highest;
      sum_of[threadIdx.x / 32] = total.sum;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    total = {};
    if (threadIdx.x < blockDim.x / 32) total = {highest_of[threadIdx.x], sum_of[threadIdx.x]};
    total.add_warp();
  }
  if (threadIdx.x > 0) return;
  const W log_of_sum = ::log(total.sum);
  lse[r] = total.highest + log_of_sum;
  if (targets[r] == rows.ignore) return;
  const int64_t target = clamp_id(targets[r], rows.classes);
  losses[r] = (total.highest - widen(row[target])) + log_of_sum;
}

constexpr int kAdders = 1024;

template <class W>
__global__ void __launch_bounds__(kAdders)
    add_losses(LogitRows rows, const int32_t* targets, const W* losses, W* sum, W* count) {
  double loss = 0, kept = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows.count; r += kAdders) {
    const bool ignored = targets[r] == rows.ignore;
    loss += ignored ? 0.0 : static_cast<double>(losses[r]);
    kept += !ignored;
  }
  __shared__ double losses_of[kAdders], kept_of[kAdders];
  losses_of[threadIdx.x] = loss;
  kept_of[threadIdx.x] = kept;
  for (int half = kAdders / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    losses_of[threadIdx.x] += losses_of[threadIdx.x + half];
    kept_of[threadIdx.x] += kept_of[threadIdx.x + half];
  }
  if (threadIdx.x > 0) return;
  *sum = static_cast<W>(losses_of[0]);
  *count = static_cast<W>(kept_of[0]);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  using W = typename Wide<T>::type;
  const LogitRows rows(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto *lse = static_cast<W*>(at.out[2]), *losses = static_cast<W*>(at.workspace);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  return [=] {
    if (rows.count > 0) {
      row_losses<T><<<tiles.grid, tiles.block, 0, stream>>>(rows, logits, targets, lse, losses);
    }
    add_losses<W><<<1, kAdders, 0, stream>>>(rows, targets, losses, sum, count);
    check_launch("cross_entropy");
  };
}

}  // namespace

Launch cross_entropy_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
