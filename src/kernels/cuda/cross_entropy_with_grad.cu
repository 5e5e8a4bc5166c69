// A block takes a row twice: for its log-sum, and at once for its gradient. What fits of a long row
// waits in shared memory, the rest in the caches: memory is read once and written once. Two rows
// share a multiprocessor where both fit; a longer one has it alone, for what two such rows leave to
// the second-level cache is more than it holds. What the two kernels apart compute, in the same
// order: the same bits.
#include <algorithm>

#include "kernels/cuda/cross_entropy_row_gradient.cuh"
#include "kernels/cuda/cross_entropy_row_loss.cuh"
#include "kernels/cuda/kernels.h"

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

template <class T, bool kOptions, class W = typename Wide<T>::type>
__global__ void __launch_bounds__(kMostRowThreads)
    row_losses_and_gradients(LogitRows rows, RowOptions<W> options, const T* logits,
                             const int32_t* targets, Floats dsum, W* losses, T* out,
                             int most_kept) {
  // Rows that share a block are a warp each, so none is waited for below.
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const auto size = static_cast<int>(rows.classes);
  T* y = out + r * rows.to_step;
  if (targets[r] == rows.ignore) return clear_row(y, size);
  const T* x = logits + r * rows.step;
  const auto target = static_cast<int>(clamp_id(targets[r], size));
  extern __shared__ uint4 room[];
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const KeptPacks kept{.at = room, .count = aligned ? ::min(most_kept, size / kPackSize<T>) : 0};
  const auto total = row_log_sum<kOptions>(x, size, options, kept);
  if (threadIdx.x == 0) losses[r] = total.loss(widen(x[target]), options);
  const RowGradient<W, kOptions> gradient{.lse = from_first_thread(total.lse()),
                                          .scale = load_float<W>(dsum.data, dsum.dtype, 0),
                                          .target = target,
                                          .options = options};
  write_row<true>(gradient, x, y, size, kept);
}

// Bytes of shared memory that a block may have where this many share a multiprocessor.
int64_t shared_bytes(int rows) {
  int device = 0, all = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "cross_entropy_with_grad");
  check_cuda(cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
             "cross_entropy_with_grad");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cross_entropy_with_grad");
  constexpr int kOwn = 2048;  // CUDA's, and what the kernel has besides
  return std::max(0, std::min(all / rows, most) - kOwn);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  using W = typename Wide<T>::type;
  const LogitRows rows(k, 2);
  const RowOptions<W> options(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Floats dsum{at.in[2], k.call.inputs[2].dtype};
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto* out = static_cast<T*>(at.out[2]);
  auto* losses = static_cast<W*>(at.workspace);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  // Rows that share a block are short: the caches have them.
  const auto kernel =
      options.any ? row_losses_and_gradients<T, true> : row_losses_and_gradients<T, false>;
  int kept = 0;
  if (tiles.block.y == 1) {
    const int64_t packs = rows.classes / kPackSize<T>, alone = shared_bytes(1);
    const int64_t beside_others = shared_bytes(kRowsInFlight);
    kept = static_cast<int>(
        std::min(packs, (16 * packs <= beside_others ? beside_others : alone) / 16));
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(alone)),
               "cross_entropy_with_grad");
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               "cross_entropy_with_grad");
  }
  return [=] {
    if (rows.count > 0) {
      kernel<<<tiles.grid, tiles.block, kept * 16, stream>>>(rows, options, logits, targets, dsum,
                                                             losses, out, kept);
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
