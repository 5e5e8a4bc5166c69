// One part of the batch, by a number that the step counts up, or a rank's piece, by its place.
#include <cstring>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "ops/axes.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch kernel(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &y = k.outputs[0];
  CHECK(k.in_strides[0] == dense_strides(x), "a batch is dense");
  const int axis = axis_attr(k.call, 0);
  const int64_t samples = x.dim(axis), size = y.dim(axis), room = x.axes[axis].physical();
  int64_t outer = 1, row = 1;
  for (int a = 0; a < axis; ++a) outer *= y.axes[a].physical();
  for (int a = axis + 1; a < y.rank(); ++a) row *= y.axes[a].physical();
  const int64_t bytes = row * size_of(y.dtype).count;
  const Dtype dtype = y.dtype;
  const double fill = k.call.number("fill", 0);
  const auto* from = static_cast<const char*>(at.in[0]);
  const void* index = at.in[1];
  auto* to = static_cast<char*>(at.out[0]);
  return [=] {
    const int64_t first = size * static_cast<int64_t>(load_element(index, Dtype::kI32, 0));
    parallel_for(outer * size, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t source = first + i % size;
        if (source < samples) {
          std::memcpy(to + i * bytes, from + (i / size * room + source) * bytes, bytes);
        } else {
          for (int64_t c = 0; c < row; ++c) store_element(to, dtype, i * row + c, fill);
        }
      }
    });
  };
}

}  // namespace

extern const Kernel cpu_part = {
    .op = "part",
    .prepare = kernel,
};

}  // namespace adjoint
