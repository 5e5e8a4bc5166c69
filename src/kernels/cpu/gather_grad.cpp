// Every element adds up the ids that point to it: rows are short, so that nothing has to be kept
// between, and 16-bit results are rounded once.
#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  using W = typename Wide<T>::type;
  const Type &dy = call.call.inputs[0], &ids = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(dy), "the elements' gradient is dense");
  CHECK(call.in_strides[1] == dense_strides(ids), "ids are dense");
  const int64_t n = call.call.integer("size"), k = ids.dim(-1);
  const int64_t rows = ids.num_elements() / std::max<int64_t>(k, 1);
  const int64_t step = dy.axes.back().physical();
  const int64_t to_step = call.outputs[0].axes.back().physical();
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* id = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<T*>(at.out[0]);
  return [=] {
    parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          W sum = 0;
          for (int64_t j = 0; j < k; ++j) {
            if (std::clamp<int64_t>(id[r * k + j], 0, n - 1) == i) {
              sum += static_cast<W>(from[r * step + j]);
            }
          }
          to[r * to_step + i] = static_cast<T>(sum);
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

extern const Kernel cpu_gather_grad = {
    .op = "gather_grad",
    .prepare = kernel,
};

}  // namespace adjoint
