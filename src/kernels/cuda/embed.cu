// Rows of a table by their ids, moved in the widest units that rows and addresses allow.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

struct Rows {
  int64_t count, rows, width, from_step, to_step;  // of ids, of the table; in units
};

template <class U>
__global__ void gather_rows(Rows r, const int32_t* ids, const U* table, U* y) {
  await_earlier();
  const int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (i >= r.count || column >= r.width) return;
  y[i * r.to_step + column] = table[clamp_id(ids[i], r.rows) * r.from_step + column];
}

}  // namespace

Launch embed_cuda(const KernelCall& k, const Pointers& at) {
  const Type &ids_type = k.call.inputs[0], &table = k.call.inputs[1];
  CHECK(k.in_strides[0] == dense_strides(ids_type), "ids are dense");
  CHECK(k.in_strides[1] == dense_strides(table), "the table is dense");
  const int64_t element = size_of(table.dtype).count, width = table.dim(1) * element;
  const int64_t from_step = k.in_strides[1][0] * element;
  const int64_t to_step = k.outputs[0].axes.back().physical() * element;
  const int64_t count = ids_type.num_elements();
  if (count == 0 || width == 0) return [] {};
  const int64_t unit = widest_unit({width, from_step, to_step}, {at.in[1], at.out[0]});
  const Rows rows{count, table.dim(0), width / unit, from_step / unit, to_step / unit};
  const Tiles tiles = tiles_of(rows.count, rows.width);
  const auto* ids = static_cast<const int32_t*>(at.in[0]);
  const void* from = at.in[1];
  void* to = at.out[0];
  const LaunchPlace place{tiles.grid, tiles.block, as_stream(at.stream), at.early};
  return with_unit(unit, [&]<class U>() -> Launch {
    return [=] {
      launch_at(place, "embed", gather_rows<U>, rows, ids, static_cast<const U*>(from),
                static_cast<U*>(to));
    };
  });
}

}  // namespace adjoint
