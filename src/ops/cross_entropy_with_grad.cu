// A block takes a row twice: for its log-sum, and at once for its gradient, while the row is still
// in the caches. Memory is read once and written once. What the two kernels apart compute, in the
// same order: the same bits.
#include "ops/cross_entropy_gradient.cuh"
#include "ops/cross_entropy_loss.cuh"
#include "ops/cuda_kernels.h"

namespace adjoint {

namespace {

// What the first thread of a row has. Whoever knows it may write over the row: all have read it.
template <class W>
__device__ W from_first_thread(W x) {
  if (blockDim.x == 32) {
    __syncwarp();
    return __shfl_sync(~0u, x, 0);
  }
  __shared__ W first;
  if (threadIdx.x == 0) first = x;
  __syncthreads();
  return first;
}

template <class T, class W = typename Wide<T>::type>
__global__ void __launch_bounds__(kMostRowThreads, kRowsInFlight)
    row_losses_and_gradients(LogitRows rows, const T* logits, const int32_t* targets, Floats dsum,
                             W* losses, T* out) {
  // Rows that share a block are a warp each, so none is waited for below.
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const auto size = static_cast<int>(rows.classes);
  T* y = out + r * rows.step;
  if (targets[r] == rows.ignore) return clear_row(y, size);
  const T* x = logits + r * rows.step;
  const auto target = static_cast<int>(clamp_id(targets[r], size));
  const LogSum<W> total = row_log_sum(x, size);
  if (threadIdx.x == 0) losses[r] = total.loss(widen(x[target]));
  const RowGradient<W> gradient{.lse = from_first_thread(total.lse()),
                                .scale = load_float<W>(dsum.data, dsum.dtype, 0),
                                .target = target};
  write_row<true>(gradient, x, y, size);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  using W = typename Wide<T>::type;
  const LogitRows rows(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Floats dsum{at.in[2], k.call.inputs[2].dtype};
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto* out = static_cast<T*>(at.out[2]);
  auto* losses = static_cast<W*>(at.workspace);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  return [=] {
    if (rows.count > 0) {
      row_losses_and_gradients<T>
          <<<tiles.grid, tiles.block, 0, stream>>>(rows, logits, targets, dsum, losses, out);
    }
    add_losses(rows, targets, losses, sum, count, stream);
    check_launch("cross_entropy_with_grad");
  };
}

}  // namespace

Launch cross_entropy_with_grad_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
