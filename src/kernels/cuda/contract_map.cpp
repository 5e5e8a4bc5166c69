#include "kernels/cuda/contraction.h"
#include "kernels/product_then_map.h"
#include "ops/in_turn.h"

namespace adjoint {

namespace {

// The epilogue reads the function's other operands as it writes the result. It uses sums before
// they are rounded, so deterministic runs, which need the bits of two separate calls, run the two
// calls.
bool has_epilogue(const KernelCall& k) {
  return !k.deterministic && k.call.inputs.size() == 3 &&
         lie_alike(k.call.inputs[2], k.in_strides[2], k.outputs[0], k.out_strides[0]) &&
         product_epilogue_takes(body_of(contract_map_in_turn(k.call).second), k.outputs[0].dtype);
}

Launch cuda(const KernelCall& k, const Pointers& at) {
  const auto calls = contract_map_calls(k);
  if (has_epilogue(k)) {
    const std::string map = k.call.text("map");
    if (const auto one = gelu_grad_contraction_cuda(map, calls->product(), at)) return *one;
  }
  return calls->prepare(at);
}

std::vector<std::string> cuda_products(const KernelCall& k) {
  if (!has_epilogue(k)) return {};
  return gelu_grad_contraction_cuda_products(k.call.text("map"), contract_map_calls(k)->product());
}

}  // namespace

extern const Kernel cuda_contract_map = {
    .op = "contract_map",
    .prepare = cuda,
    .workspace = [](const KernelCall& k) { return contract_map_calls(k)->workspace(); },
    .products = cuda_products,
};

}  // namespace adjoint
