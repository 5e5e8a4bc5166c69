// A linear map through cuBLASLt, see kernels/cuda/contraction.h.
#include "kernels/cuda/contraction.h"
#include "ops/product_letters.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  return contraction_cuda(linear_map(k.call.inputs[0]), k, at);
}

}  // namespace

extern const Kernel cuda_linear = {
    .op = "linear",
    .prepare = cuda,
    .workspace =
        [](const KernelCall& k) {
          return contraction_cuda_workspace(linear_map(k.call.inputs[0]), k);
        },
    .products =
        [](const KernelCall& k) {
          return contraction_cuda_products(linear_map(k.call.inputs[0]), k);
        },
};

}  // namespace adjoint
