// A contraction through cuBLASLt, see kernels/cuda/contraction.h.
#include "kernels/cuda/contraction.h"

namespace adjoint {

namespace {

Launch cuda(const KernelCall& k, const Pointers& at) {
  return contraction_cuda(k.call.text("map"), k, at);
}

}  // namespace

extern const Kernel cuda_contract = {
    .op = "contract",
    .prepare = cuda,
    .workspace =
        [](const KernelCall& k) { return contraction_cuda_workspace(k.call.text("map"), k); },
    .products =
        [](const KernelCall& k) { return contraction_cuda_products(k.call.text("map"), k); },
};

}  // namespace adjoint
