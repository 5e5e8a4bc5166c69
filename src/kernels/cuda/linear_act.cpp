#include "kernels/cuda/contraction.h"
#include "kernels/product_then_map.h"
#include "ops/in_turn.h"
#include "ops/product_letters.h"

namespace adjoint {

namespace {

// One launch if f is gelu and both results are wanted. The epilogue uses sums before they are
// rounded, and there is none without `keep`: deterministic runs, which need the same bits with and
// without `keep`, use two calls.
bool wants_gelu_beside(const KernelCall& k) {
  if (k.deterministic || k.outputs.size() < 2 ||
      !lie_alike(k.outputs[0], k.out_strides[0], k.outputs[1], k.out_strides[1])) {
    return false;
  }
  const OpCall act = linear_act_in_turn(k.call).second;
  const OpCall gelu{.op = "gelu", .inputs = act.inputs, .attrs = {}};
  return print(body_of(act)) == print(body_of(gelu));
}

Launch cuda(const KernelCall& k, const Pointers& at) {
  const auto calls = linear_act_calls(k);
  if (wants_gelu_beside(k)) {
    const std::string map = linear_map(k.call.inputs[0]);
    if (const auto one = gelu_contraction_cuda(map, calls->product(), at)) return *one;
  }
  return calls->prepare(at);
}

std::vector<std::string> cuda_products(const KernelCall& k) {
  if (!wants_gelu_beside(k)) return {};
  return gelu_contraction_cuda_products(linear_map(k.call.inputs[0]),
                                        linear_act_calls(k)->product());
}

}  // namespace

extern const Kernel cuda_linear_act = {
    .op = "linear_act",
    .prepare = cuda,
    .workspace = [](const KernelCall& k) { return linear_act_calls(k)->workspace(); },
    .products = cuda_products,
};

}  // namespace adjoint
