// The part of a batch that a number on the GPU names, and the random counter that goes with it: the
// host does not know the number, so that one captured step serves every part.
#include <cstring>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

struct Rows {
  int64_t units, size, samples;  // of a row; rows of the part and of the batch
  int64_t outer, room;           // how often these are there; rows that a batch has room for
};

template <class U>
__global__ void take_rows(Rows r, const U* from, const int32_t* index, U fill, U* to) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t unit = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (row >= r.outer * r.size || unit >= r.units) return;
  const int64_t source = r.size * *index + row % r.size;
  to[row * r.units + unit] =
      source < r.samples ? from[(row / r.size * r.room + source) * r.units + unit] : fill;
}

__global__ void move_counter(const int64_t* from, const int32_t* index, int64_t size, int64_t* to) {
  to[0] = from[0];
  to[1] = from[1];
  to[2] = from[2] + size * *index;
}

}  // namespace

Launch part_cuda(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &y = k.outputs[0];
  CHECK(k.in_strides[0] == dense_strides(x), "a batch is dense");
  const int axis = axis_attr(k.call, 0);
  const int64_t element = size_of(y.dtype).count;
  int64_t outer = 1, bytes = element;
  for (int a = 0; a < axis; ++a) outer *= y.axes[a].physical();
  for (int a = axis + 1; a < y.rank(); ++a) bytes *= y.axes[a].physical();
  if (bytes == 0) return [] {};
  const int64_t unit = widest_unit({bytes}, {at.in[0], at.out[0]});
  const Rows rows{.units = bytes / unit,
                  .size = y.dim(axis),
                  .samples = x.dim(axis),
                  .outer = outer,
                  .room = x.axes[axis].physical()};
  const Tiles tiles = tiles_of(rows.outer * rows.size, rows.units);
  alignas(16) char fill[16];
  for (int64_t i = 0; i < 16 / element; ++i) {
    store_element(fill, y.dtype, i, k.call.number("fill", 0));
  }
  const void* from = at.in[0];
  const auto* index = static_cast<const int32_t*>(at.in[1]);
  void* to = at.out[0];
  const cudaStream_t stream = as_stream(at.stream);
  return with_unit(unit, [&]<class U>() -> Launch {
    U pattern;
    std::memcpy(&pattern, fill, sizeof(U));
    return [=] {
      take_rows<<<tiles.grid, tiles.block, 0, stream>>>(rows, static_cast<const U*>(from), index,
                                                        pattern, static_cast<U*>(to));
      check_launch("part");
    };
  });
}

Launch part_counter_cuda(const KernelCall& k, const Pointers& at) {
  const auto* from = static_cast<const int64_t*>(at.in[0]);
  const auto* index = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<int64_t*>(at.out[0]);
  return [=, size = k.call.integer("size"), stream = as_stream(at.stream)] {
    move_counter<<<1, 1, 0, stream>>>(from, index, size, to);
    check_launch("part_counter");
  };
}

}  // namespace adjoint
