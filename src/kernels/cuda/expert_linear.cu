// Rows are sorted by their experts, then multiplied in tiles of one expert's rows; results go to
// their tokens' places. What is to be summed over a token's choices lies apart first, one row for
// each choice, and is summed in the order of choices.
#include <algorithm>

#include "kernels/cuda/expert_plain.cuh"
#include "kernels/cuda/expert_products.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/sm90a/expert_tiles.h"
#include "kernels/cuda/thin_product.h"
#include "kernels/dense_operands.h"
#include "ops/expert_linear.h"

namespace adjoint {

namespace {

using namespace experts;

template <class T>
__global__ void sum_choices(int64_t tokens, int chosen, int width, int64_t to_step, const T* rows,
                            T* y) {
  using W = typename Wide<T>::type;
  const int64_t token = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (token >= tokens || column >= width) return;
  W sum = 0;
  for (int j = 0; j < chosen; ++j) sum += widen(rows[(token * chosen + j) * width + column]);
  y[token * to_step + column] = narrow<T>(sum);
}

// The same, 16 bytes at once.
template <class T>
__global__ void sum_choices_packed(int64_t tokens, int chosen, int packs, int64_t to_step,
                                   const Pack<T>* rows, Pack<T>* y) {
  using W = typename Wide<T>::type;
  const int64_t token = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t pack = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (token >= tokens || pack >= packs) return;
  W sum[kPackSize<T>] = {};
  for (int j = 0; j < chosen; ++j) {
    W x[kPackSize<T>];
    rows[(token * chosen + j) * packs + pack].widen_to(x);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) sum[i] += x[i];
  }
  y[token * to_step + pack] = Pack<T>::narrowed(sum);
}

template <class T>
Launch prepare_sum(const ExpertLinearShape& s, int64_t to_step, const void* rows, void* y,
                   cudaStream_t stream) {
  const int64_t pack = kPackSize<T>;
  if (s.out % pack == 0 && to_step % pack == 0 && is_aligned(y, 16)) {
    const Tiles tiles = tiles_of(s.tokens, s.out / pack);
    return [=] {
      sum_choices_packed<<<tiles.grid, tiles.block, 0, stream>>>(
          s.tokens, static_cast<int>(s.chosen), static_cast<int>(s.out / pack), to_step / pack,
          static_cast<const Pack<T>*>(rows), static_cast<Pack<T>*>(y));
    };
  }
  const Tiles tiles = tiles_of(s.tokens, s.out);
  return [=] {
    sum_choices<<<tiles.grid, tiles.block, 0, stream>>>(
        s.tokens, static_cast<int>(s.chosen), static_cast<int>(s.out), to_step,
        static_cast<const T*>(rows), static_cast<T*>(y));
  };
}

template <class T>
Launch prepare_products(const RowProducts& p, const T* x, const T* w, const T* bias, T* y,
                        cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    const bool transposed = p.w_out == 1 && p.w_in != 1;
    const int64_t row = transposed ? p.w_in : p.w_out;
    const bool packed = p.x_step % 8 == 0 && p.y_step % 8 == 0 && row % 8 == 0 &&
                        p.w_expert % 8 == 0 && is_aligned(x, 16) && is_aligned(w, 16) &&
                        is_aligned(y, 16);
    if (packed && tiles::fits_device(p.sorted.experts)) {
      const int64_t most = (ceil_div(p.sorted.rows, tiles::kRows) + p.sorted.experts) *
                           ceil_div(p.out, tiles::kColumns);
      if (transposed) {
        const tiles::Products<T, true> work{p, x, w, bias, y};
        return tiles::launch_tiles<T>(work, p.sorted, most, stream);
      }
      const tiles::Products<T, false> work{p, x, w, bias, y};
      return tiles::launch_tiles<T>(work, p.sorted, most, stream);
    }
  }
  const int64_t most =
      (ceil_div(p.sorted.rows, plain::kTile) + p.sorted.experts) * ceil_div(p.out, plain::kTile);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, 1 << 16));
  const size_t counts = 4 * (p.sorted.experts + 1);
  return
      [=] { plain::row_products<<<blocks, plain::kThreads, counts, stream>>>(p, x, w, bias, y); };
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const ExpertLinearShape s = expert_linear_shape(k.call);
  if (s.out > INT32_MAX || s.in > INT32_MAX) {
    throw MachineError("expert_linear: CUDA takes no more than 2^31 elements a row");
  }
  if (s.count() == 0 || s.out == 0) return [] {};
  const ExpertLayout layout = expert_linear_layout(k);
  const Strides w = dense_strides(k.call.inputs[1]);
  const int64_t y_step = k.outputs[0].axes.back().physical();
  void* results = s.sum ? static_cast<char*>(at.workspace) + layout.results.count : at.out[0];
  const RowProducts p{.sorted = sorted_at(s, layout, at.workspace),
                      .in = static_cast<int>(s.in),
                      .out = static_cast<int>(s.out),
                      .x_each = s.x_each,
                      .x_step = k.call.inputs[0].axes.back().physical(),
                      .y_step = s.sum ? s.out : y_step,
                      .bias_step = s.bias ? k.call.inputs[3].axes.back().physical() : 0,
                      .w_expert = w[0],
                      .w_out = w[s.transposed ? 2 : 1],
                      .w_in = w[s.transposed ? 1 : 2]};
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const cudaStream_t stream = as_stream(at.stream);
  const Launch multiply = prepare_products<T>(
      p, static_cast<const T*>(at.in[0]), static_cast<const T*>(at.in[1]),
      s.bias ? static_cast<const T*>(at.in[3]) : nullptr, static_cast<T*>(results), stream);
  const Launch sum = s.sum ? prepare_sum<T>(s, y_step, results, at.out[0], stream) : Launch([] {});
  return [=] {
    launch_sort(p.sorted, choice, stream);
    multiply();
    sum();
    check_launch("expert_linear");
  };
}

}  // namespace

Launch expert_linear_cuda(const KernelCall& call, const Pointers& at) {
  check_operands_are_dense(call);
  if (thin_experts_on_cuda(call)) return thin_experts_cuda(call, at);
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
