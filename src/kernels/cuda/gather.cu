// A thread for each element, of gather and of its gradient: rows are short, and every element of a
// gradient reads all ids of its row, so that sums have the order of the ids.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

struct Gathered {
  int64_t rows, step, to_step;
  int size, ids;  // of a row: what ids point to, and how many there are
};

template <class T>
__global__ void gather(Gathered g, const T* x, const int32_t* ids, T* y) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t j = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (row >= g.rows || j >= g.ids) return;
  y[row * g.to_step + j] = x[row * g.step + clamp_id(ids[row * g.ids + j], g.size)];
}

template <class T>
__global__ void gather_gradient(Gathered g, const T* dy, const int32_t* ids, T* dx) {
  using W = typename Wide<T>::type;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (row >= g.rows || i >= g.size) return;
  W sum = 0;
  for (int j = 0; j < g.ids; ++j) {
    if (clamp_id(ids[row * g.ids + j], g.size) == i) sum += widen(dy[row * g.step + j]);
  }
  dx[row * g.to_step + i] = narrow<T>(sum);
}

Gathered gathered(const KernelCall& call, int64_t size) {
  const Type &x = call.call.inputs[0], &ids = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(x), "x is dense");
  CHECK(call.in_strides[1] == dense_strides(ids), "ids are dense");
  if (size > INT32_MAX || ids.dim(-1) > INT32_MAX) {
    throw MachineError("gather: CUDA takes no more than 2^31 elements a row");
  }
  return {.rows = x.dim(-1) ? x.num_elements() / x.dim(-1) : 0,
          .step = x.axes.back().physical(),
          .to_step = call.outputs[0].axes.back().physical(),
          .size = static_cast<int>(size),
          .ids = static_cast<int>(ids.dim(-1))};
}

}  // namespace

Launch gather_cuda(const KernelCall& call, const Pointers& at) {
  const Gathered g = gathered(call, call.call.inputs[0].dim(-1));
  if (g.rows == 0 || g.ids == 0) return [] {};
  const Tiles tiles = tiles_of(g.rows, g.ids);
  return with_device_type(call.call.inputs[0].dtype, [&]<class T>() -> Launch {
    const auto* x = static_cast<const T*>(at.in[0]);
    const auto* ids = static_cast<const int32_t*>(at.in[1]);
    auto* y = static_cast<T*>(at.out[0]);
    return [=, stream = as_stream(at.stream)] {
      gather<<<tiles.grid, tiles.block, 0, stream>>>(g, x, ids, y);
      check_launch("gather");
    };
  });
}

Launch gather_grad_cuda(const KernelCall& call, const Pointers& at) {
  const Gathered g = gathered(call, call.call.integer("size"));
  if (g.rows == 0) return [] {};
  const Tiles tiles = tiles_of(g.rows, g.size);
  return with_device_type(call.call.inputs[0].dtype, [&]<class T>() -> Launch {
    const auto* dy = static_cast<const T*>(at.in[0]);
    const auto* ids = static_cast<const int32_t*>(at.in[1]);
    auto* dx = static_cast<T*>(at.out[0]);
    return [=, stream = as_stream(at.stream)] {
      gather_gradient<<<tiles.grid, tiles.block, 0, stream>>>(g, dy, ids, dx);
      check_launch("gather_grad");
    };
  });
}

}  // namespace adjoint
