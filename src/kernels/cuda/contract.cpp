// The ops that are one contraction each, through cuBLASLt where it has an algorithm
// (kernels/cuda/contraction.h); they differ in where their index map is said.
#include "kernels/cuda/contraction.h"
#include "ops/product_letters.h"

namespace adjoint {

namespace {

std::string map_of_contract(const OpCall& call) { return call.text("map"); }
std::string map_of_linear(const OpCall& call) { return linear_map(call.inputs[0]); }

template <std::string (*map_of)(const OpCall&)>
constexpr Kernel contraction(std::string_view op) {
  return {
      .op = op,
      .prepare = [](const KernelCall& k,
                    const Pointers& at) { return contraction_cuda(map_of(k.call), k, at); },
      .workspace =
          [](const KernelCall& k) { return contraction_cuda_workspace(map_of(k.call), k); },
      .products = [](const KernelCall& k) { return contraction_cuda_products(map_of(k.call), k); }};
}

}  // namespace

extern const Kernel cuda_contract = contraction<map_of_contract>("contract");
extern const Kernel cuda_linear = contraction<map_of_linear>("linear");

}  // namespace adjoint
