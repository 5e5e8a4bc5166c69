// Rows are copied by their ids.
#include <cstring>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

Launch gather(const KernelCall& k, const Pointers& at) {
  const Type &ids_type = k.call.inputs[0], &table_type = k.call.inputs[1];
  CHECK(k.in_strides[0] == dense_strides(ids_type), "ids are dense");
  const int64_t count = ids_type.num_elements(), rows = table_type.dim(0);
  const int64_t element = size_of(table_type.dtype).count, width = table_type.dim(1) * element;
  const int64_t from_step = k.in_strides[1][0] * element;
  const int64_t to_step = k.outputs[0].axes.back().physical() * element;
  const auto* ids = static_cast<const int32_t*>(at.in[0]);
  const auto* table = static_cast<const char*>(at.in[1]);
  auto* y = static_cast<char*>(at.out[0]);
  return [=] {
    parallel_for(count, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = std::clamp<int64_t>(ids[i], 0, rows - 1);
        std::memcpy(y + i * to_step, table + row * from_step, width);
      }
    });
  };
}

}  // namespace

extern const Kernel cpu_embed = {
    .op = "embed",
    .prepare = gather,
};

}  // namespace adjoint
