// A contraction as one product of oneDNN's, or in plain loops where its axes do not merge. An
// addend that is not in the result's place is copied there first.
#include "kernels/cpu/copy.h"
#include "kernels/cpu/product.h"
#include "kernels/reference/naive_contraction.h"

namespace adjoint {

namespace {

std::optional<Product> product_of(const KernelCall& k) {
  auto product = product_on_cpu(k.call.text("map"), k);
  if (product) product->accumulate = k.call.inputs.size() > 2;
  return product;
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const auto product = product_of(k);
  if (!product) return prepare_naive_contract(k.call.text("map"), k, at);
  const Launch multiply =
      prepare_product(*product, at.in[0], at.in[1], nullptr, at.out[0], at.workspace);
  if (!product->accumulate || at.in[2] == at.out[0]) return multiply;
  const Launch begin = prepare_copy(k.outputs[0], k.in_strides[2], at.in[2], k.outputs[0],
                                    k.out_strides[0], at.out[0]);
  return [=] {
    begin();
    multiply();
  };
}

}  // namespace

extern const Kernel cpu_contract = {
    .op = "contract",
    .prepare = cpu,
    .workspace =
        [](const KernelCall& k) {
          const auto product = product_of(k);
          return product ? product_workspace(*product)
                         : naive_contract_workspace(k.call.text("map"), k);
        },
};

}  // namespace adjoint
