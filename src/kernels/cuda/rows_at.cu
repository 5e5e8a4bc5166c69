// Rows of samples, from a row on that is data on the GPU: copied out, or copied in.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

// Elements of an object [samples, rows, width], or [samples, rows] with a width of 1.
struct Steps {
  int64_t sample, row, column;
};
Steps steps_of(const Strides& strides) {
  return {strides[0], strides[1], strides.size() > 2 ? strides[2] : 1};
}

struct Few {
  int64_t samples, size, rows, width;  // `size` rows of each sample's `rows`
  Steps few, all;
  int64_t first_step, before;
  bool ring = false;
};

template <class U>
__global__ void take(Few f, const U* from, const int32_t* first, U* to) {
  await_earlier();
  const int64_t each = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (each >= f.samples * f.size || column >= f.width) return;
  const int64_t sample = each / f.size, i = each % f.size;
  const int64_t row = clamp_id(first[sample * f.first_step] + i, f.rows);
  to[sample * f.few.sample + i * f.few.row + column * f.few.column] =
      from[sample * f.all.sample + row * f.all.row + column * f.all.column];
}

template <class U>
__global__ void put(Few f, const U* from, const int32_t* first, U* to) {
  await_earlier();
  const int64_t each = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (each >= f.samples * f.size || column >= f.width) return;
  const int64_t sample = each / f.size, i = each % f.size;
  int64_t row = f.before + first[sample * f.first_step] + i;
  if (row < 0 || (row >= f.rows && !f.ring)) return;
  if (f.ring) row %= f.rows;
  to[sample * f.all.sample + row * f.all.row + column * f.all.column] =
      from[sample * f.few.sample + i * f.few.row + column * f.few.column];
}

int64_t width_of(const Type& type) { return type.rank() > 2 ? type.dim(2) : 1; }

}  // namespace

Launch rows_at_cuda(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &y = k.outputs[0];
  const Few few{.samples = x.dim(0),
                .size = y.dim(1),
                .rows = x.dim(1),
                .width = width_of(x),
                .few = steps_of(k.out_strides[0]),
                .all = steps_of(k.in_strides[0]),
                .first_step = k.in_strides[1][0],
                .before = 0};
  const Tiles tiles = tiles_of(few.samples * few.size, few.width);
  const void* from = at.in[0];
  const auto* first = static_cast<const int32_t*>(at.in[1]);
  void* to = at.out[0];
  const LaunchPlace place{tiles.grid, tiles.block, as_stream(at.stream), at.early};
  return with_unit(size_of(x.dtype).count, [&]<class U>() -> Launch {
    return [=] {
      launch_at(place, "rows_at", take<U>, few, static_cast<const U*>(from), first,
                static_cast<U*>(to));
    };
  });
}

Launch put_rows_cuda(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &rows = k.call.inputs[1];
  const Few few{.samples = x.dim(0),
                .size = rows.dim(1),
                .rows = x.dim(1),
                .width = width_of(x),
                .few = steps_of(k.in_strides[1]),
                .all = steps_of(k.out_strides[0]),
                .first_step = k.in_strides[2][0],
                .before = k.call.integer("from", 0),
                .ring = k.call.integer("ring", 0) != 0};
  const Tiles tiles = tiles_of(few.samples * few.size, few.width);
  const void* from = at.in[1];
  const auto* first = static_cast<const int32_t*>(at.in[2]);
  void* to = at.out[0];
  const LaunchPlace place{tiles.grid, tiles.block, as_stream(at.stream), at.early};
  // State is written where it lies; elsewhere the other rows are copied first.
  Launch others;
  if (at.in[0] != to) {
    others = copy_cuda(x, k.in_strides[0], at.in[0], k.outputs[0], k.out_strides[0], to, at.stream);
  }
  return with_unit(size_of(x.dtype).count, [&]<class U>() -> Launch {
    return [=] {
      if (others) others();
      launch_at(place, "put_rows", put<U>, few, static_cast<const U*>(from), first,
                static_cast<U*>(to));
    };
  });
}

}  // namespace adjoint
