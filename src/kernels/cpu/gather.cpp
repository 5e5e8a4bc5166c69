// Elements of rows are copied by their ids, as bits.
#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type &x = call.call.inputs[0], &ids = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(x), "x is dense");
  CHECK(call.in_strides[1] == dense_strides(ids), "ids are dense");
  const int64_t n = x.dim(-1), k = ids.dim(-1), rows = x.num_elements() / n;
  const int64_t step = x.axes.back().physical();
  const int64_t to_step = call.outputs[0].axes.back().physical();
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* id = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<T*>(at.out[0]);
  return [=] {
    parallel_for(rows, 256, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t j = 0; j < k; ++j) {
          to[r * to_step + j] = from[r * step + std::clamp<int64_t>(id[r * k + j], 0, n - 1)];
        }
      }
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace

extern const Kernel cpu_gather = {
    .op = "gather",
    .prepare = kernel,
};

}  // namespace adjoint
