// A warp for each row, and every expert asks whether it was chosen: one that is chosen twice counts
// once by itself, and nothing has to be kept between the highest score, the sum and the weights.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

constexpr int kRowsABlock = 8;

struct Rows {
  int64_t count, step, choice_step, to_step;
  int size, chosen;
};

template <class T>
__global__ void weigh(Rows rows, const T* scores, const int32_t* choice, T* weights) {
  using W = typename Wide<T>::type;
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const T* row = scores + r * rows.step;
  const int32_t* chosen = choice + r * rows.choice_step;
  const auto is_chosen = [&](int e) {
    for (int j = 0; j < rows.chosen; ++j) {
      if (clamp_id(chosen[j], rows.size) == e) return true;
    }
    return false;
  };
  W highest = -INFINITY, sum = 0;
  for (int e = threadIdx.x; e < rows.size; e += 32) {
    if (is_chosen(e)) highest = ::max(highest, widen(row[e]));
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    highest = ::max(highest, __shfl_xor_sync(~0u, highest, lanes));
  }
  for (int e = threadIdx.x; e < rows.size; e += 32) {
    if (is_chosen(e)) sum += ::exp(widen(row[e]) - highest);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  for (int e = threadIdx.x; e < rows.size; e += 32) {
    const W weight = is_chosen(e) ? ::exp(widen(row[e]) - highest) / sum : W{0};
    weights[r * rows.to_step + e] = narrow<T>(weight);
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type &scores = call.call.inputs[0], &choice = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(scores), "scores are dense");
  CHECK(call.in_strides[1] == dense_strides(choice), "the choice is dense");
  const int64_t size = scores.dim(-1), count = scores.num_elements() / size;
  if (size > INT32_MAX) throw MachineError("route: CUDA takes no more than 2^31 scores a row");
  if (count == 0) return [] {};
  const Rows rows{count,
                  scores.axes.back().physical(),
                  choice.axes.back().physical(),
                  call.outputs[0].axes.back().physical(),
                  static_cast<int>(size),
                  static_cast<int>(choice.dim(-1))};
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* chosen = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<T*>(at.out[0]);
  const auto blocks = static_cast<unsigned>(ceil_div(count, kRowsABlock));
  return [=, stream = as_stream(at.stream)] {
    weigh<<<blocks, dim3(32, kRowsABlock), 0, stream>>>(rows, from, chosen, to);
    check_launch("route");
  };
}

}  // namespace

Launch route_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint
