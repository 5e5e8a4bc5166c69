// The random counter of one part of the batch.
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

Launch kernel(const KernelCall& k, const Pointers& at) {
  const auto* from = static_cast<const int64_t*>(at.in[0]);
  const void* index = at.in[1];
  auto* to = static_cast<int64_t*>(at.out[0]);
  return [=, size = k.call.integer("size")] {
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2] + size * static_cast<int64_t>(load_element(index, Dtype::kI32, 0));
  };
}

}  // namespace

extern const Kernel cpu_part_counter = {
    .op = "part_counter",
    .prepare = kernel,
};

}  // namespace adjoint
