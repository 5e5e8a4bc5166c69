// Losses of rows are kept and then added by one block, in an order that the number of rows fixes.
#include "kernels/cuda/cross_entropy_row_loss.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

template <class T, bool kOptions, class W = typename Wide<T>::type>
__global__ void __launch_bounds__(kMostRowThreads)
    row_losses(LogitRows rows, RowOptions<W> options, const T* logits, const int32_t* targets,
               RowNumbers log_sums, W* lse, W* losses) {
  // Rows that share a block are a warp each, so none is waited for below.
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const T* row = logits + r * rows.step;
  const auto total = row_log_sum<kOptions>(row, static_cast<int>(rows.classes), options);
  if (threadIdx.x > 0) return;
  lse[log_sums.at(r)] = total.lse();
  if (targets[r] == rows.ignore) return;
  losses[r] = total.loss(widen(row[clamp_id(targets[r], rows.classes)]), options);
}

constexpr int kAdders = 1024;

template <class W>
__global__ void __launch_bounds__(kAdders)
    add_rows(LogitRows rows, const int32_t* targets, const W* losses, W* sum, W* count) {
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
  const RowOptions<W> options(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  auto *sum = static_cast<W*>(at.out[0]), *count = static_cast<W*>(at.out[1]);
  auto *lse = static_cast<W*>(at.out[2]), *losses = static_cast<W*>(at.workspace);
  const RowNumbers log_sums(k.outputs[2]);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  const auto kernel = options.any ? row_losses<T, true> : row_losses<T, false>;
  return [=] {
    if (rows.count > 0) {
      kernel<<<tiles.grid, tiles.block, 0, stream>>>(rows, options, logits, targets, log_sums, lse,
                                                     losses);
    }
    add_losses(rows, targets, losses, sum, count, stream);
    check_launch("cross_entropy");
  };
}

}  // namespace

template <class W>
void add_losses(const LogitRows& rows, const int32_t* targets, const W* losses, W* sum, W* count,
                cudaStream_t stream) {
  add_rows<W><<<1, kAdders, 0, stream>>>(rows, targets, losses, sum, count);
}
template void add_losses(const LogitRows&, const int32_t*, const float*, float*, float*,
                         cudaStream_t);
template void add_losses(const LogitRows&, const int32_t*, const double*, double*, double*,
                         cudaStream_t);

Launch cross_entropy_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
