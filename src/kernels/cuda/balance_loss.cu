// A block for each sequence: it counts choices in shared memory, where whole numbers add up the
// same in any order, and sums its losses in an order that the shape fixes. One more block adds the
// sequences up.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "ops/balance_loss.h"

namespace adjoint {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostCounted = 8192;  // experts: their counts are 32 KiB of shared memory

struct Balance {
  int64_t positions, experts, step, load_step;
  int chosen;
  int64_t ignore;
};

// The sum over the block, of which thread 0 gets all.
template <class W>
__device__ W sum_over_block(W mine) {
  __shared__ W sums[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
  __syncthreads();
  W total = 0;
  for (int w = 0; w < kThreads / 32; ++w) total += sums[w];
  return total;
}

template <class T, class W>
__global__ void balance_sequences(Balance b, const T* p, const int32_t* choice,
                                  const int32_t* targets, W* load, W* losses) {
  extern __shared__ int counts[];
  __shared__ int positions;
  const int64_t first = blockIdx.x * b.positions;
  const auto counts_for = [&](int64_t i) { return !targets || targets[first + i] != b.ignore; };
  for (int64_t e = threadIdx.x; e < b.experts; e += kThreads) counts[e] = 0;
  if (threadIdx.x == 0) positions = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < b.positions; i += kThreads) {
    if (!counts_for(i)) continue;
    atomicAdd(&positions, 1);
    for (int j = 0; j < b.chosen; ++j) {
      atomicAdd(&counts[clamp_id(choice[(first + i) * b.chosen + j], b.experts)], 1);
    }
  }
  __syncthreads();
  const W counted = static_cast<W>(positions);
  const W scale =
      positions ? static_cast<W>(b.experts) / (counted * (counted * static_cast<W>(b.chosen))) : 0;
  W sum = 0;
  for (int64_t i = threadIdx.x; i < b.positions * b.experts; i += kThreads) {
    const int64_t position = i / b.experts, e = i % b.experts;
    if (!counts_for(position)) continue;
    sum += static_cast<W>(counts[e]) * scale * widen(p[(first + position) * b.step + e]);
  }
  sum = sum_over_block(sum);
  for (int64_t e = threadIdx.x; e < b.experts; e += kThreads) {
    load[blockIdx.x * b.load_step + e] = static_cast<W>(counts[e]) * scale;
  }
  if (threadIdx.x == 0) {
    losses[2 * blockIdx.x] = sum;
    losses[2 * blockIdx.x + 1] = positions ? 1 : 0;
  }
}

template <class W>
__global__ void add_sequences(int64_t sequences, const W* losses, W* sum, W* count) {
  W loss = 0, counted = 0;
  for (int64_t q = threadIdx.x; q < sequences; q += kThreads) {
    loss += losses[2 * q];
    counted += losses[2 * q + 1];
  }
  loss = sum_over_block(loss);
  __syncthreads();
  counted = sum_over_block(counted);
  if (threadIdx.x > 0) return;
  *sum = loss;
  *count = counted;
}

template <class T, class W>
__global__ void balance_gradient(Balance b, int64_t rows, const W* load, const void* dsum,
                                 Dtype dsum_dtype, const int32_t* targets, T* to) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t e = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (row >= rows || e >= b.experts) return;
  const bool counts = !targets || targets[row] != b.ignore;
  const W slope = load_float<W>(dsum, dsum_dtype, 0) * load[row / b.positions * b.load_step + e];
  to[row * b.step + e] = narrow<T>(counts ? slope : W{0});
}

void check_dense(const KernelCall& call) {
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    CHECK(call.in_strides[i] == dense_strides(call.call.inputs[i]),
          "operands of balance_loss are dense");
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  using W = typename Wide<T>::type;
  const Type& p = call.call.inputs[0];
  const BalanceShape s = balance_shape(p, call.outputs[2]);
  if (s.experts > kMostCounted) {
    throw MachineError("balance_loss: CUDA takes no more than " + std::to_string(kMostCounted) +
                       " experts");
  }
  const Balance b{.positions = s.positions,
                  .experts = s.experts,
                  .step = p.axes.back().physical(),
                  .load_step = call.outputs[2].axes.back().physical(),
                  .chosen = static_cast<int>(call.call.inputs[1].dim(-1)),
                  .ignore = ignored_target(call.call)};
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* choice = static_cast<const int32_t*>(at.in[1]);
  const auto* targets = at.in.size() > 2 ? static_cast<const int32_t*>(at.in[2]) : nullptr;
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto *load = static_cast<W*>(at.out[2]), *losses = static_cast<W*>(at.workspace);
  return [=, stream = as_stream(at.stream)] {
    if (s.sequences > 0) {
      balance_sequences<<<static_cast<unsigned>(s.sequences), kThreads, 4 * s.experts, stream>>>(
          b, from, choice, targets, load, losses);
    }
    add_sequences<<<1, kThreads, 0, stream>>>(s.sequences, losses, sum, count);
    check_launch("balance_loss");
  };
}

template <class T>
Launch prepare_gradient(const KernelCall& call, const Pointers& at) {
  using W = typename Wide<T>::type;
  const Type& out = call.outputs[0];
  const BalanceShape s = balance_shape(out, call.call.inputs[1]);
  const Balance b{.positions = s.positions,
                  .experts = s.experts,
                  .step = out.axes.back().physical(),
                  .load_step = call.call.inputs[1].axes.back().physical(),
                  .chosen = 0,
                  .ignore = ignored_target(call.call)};
  const int64_t rows = s.sequences * s.positions;
  if (rows == 0 || s.experts == 0) return [] {};
  const auto* load = static_cast<const W*>(at.in[1]);
  const void* dsum = at.in[2];
  const Dtype dsum_dtype = call.call.inputs[2].dtype;
  const auto* targets = at.in.size() > 3 ? static_cast<const int32_t*>(at.in[3]) : nullptr;
  auto* to = static_cast<T*>(at.out[0]);
  const Tiles tiles = tiles_of(rows, s.experts);
  return [=, stream = as_stream(at.stream)] {
    balance_gradient<<<tiles.grid, tiles.block, 0, stream>>>(b, rows, load, dsum, dsum_dtype,
                                                             targets, to);
    check_launch("balance_loss_grad");
  };
}

}  // namespace

Launch balance_loss_cuda(const KernelCall& call, const Pointers& at) {
  check_dense(call);
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

Launch balance_loss_grad_cuda(const KernelCall& call, const Pointers& at) {
  check_dense(call);
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare_gradient<T>(call, at); });
}

}  // namespace adjoint
