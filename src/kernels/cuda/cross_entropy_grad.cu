// One reading of the logits and one writing.
#include "kernels/cuda/cross_entropy_row_gradient.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

template <class T, bool kOptions, class W = typename Wide<T>::type>
__global__ void __launch_bounds__(kMostRowThreads)
    row_gradients(LogitRows rows, RowOptions<W> options, const T* logits, const int32_t* targets,
                  RowNumbers log_sums, Floats lse, Floats dsum, T* out) {
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const auto size = static_cast<int>(rows.classes);
  T* y = out + r * rows.to_step;
  if (targets[r] == rows.ignore) return clear_row(y, size);
  const T* x = logits + r * rows.step;
  const RowGradient<W, kOptions> gradient{.lse = load_float<W>(lse.data, lse.dtype, log_sums.at(r)),
                                          .scale = load_float<W>(dsum.data, dsum.dtype, 0),
                                          .target = static_cast<int>(clamp_id(targets[r], size)),
                                          .options = options};
  write_row<false>(gradient, x, y, size);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const LogitRows rows(k, 0);
  const RowOptions<typename Wide<T>::type> options(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Floats lse{at.in[2], k.call.inputs[2].dtype}, dsum{at.in[3], k.call.inputs[3].dtype};
  const RowNumbers log_sums(k.call.inputs[2]);
  auto* out = static_cast<T*>(at.out[0]);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  if (rows.count == 0) return [] {};
  const auto kernel = options.any ? row_gradients<T, true> : row_gradients<T, false>;
  return [=] {
    kernel<<<tiles.grid, tiles.block, 0, stream>>>(rows, options, logits, targets, log_sums, lse,
                                                   dsum, out);
    check_launch("cross_entropy_grad");
  };
}

}  // namespace

Launch cross_entropy_grad_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
