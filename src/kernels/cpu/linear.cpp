#include "kernels/cpu/product.h"
#include "kernels/reference/naive_contraction.h"
#include "ops/product_letters.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Nothing for float64, nor for padding that a single row stride cannot express.
std::optional<Product> product_of(const KernelCall& k) {
  auto product = product_on_cpu(linear_map(k.call.inputs[0]), k);
  if (product) product->bias = k.call.inputs.size() > 2;
  return product;
}

// In plain loops, whatever the dtype and the strides.
Launch naive(const KernelCall& k, const Pointers& at) {
  const Launch multiply = prepare_naive_contract(linear_map(k.call.inputs[0]), k, at);
  if (k.call.inputs.size() < 3) return multiply;
  const void* bias = at.in[2];
  void* y = at.out[0];
  const Type type = k.outputs[0];
  const Strides strides = k.out_strides[0];
  return [=] {
    multiply();
    for (int64_t i = 0; i < type.num_elements(); ++i) {
      int64_t rest = i, to = 0;
      for (int a = type.rank(); a-- > 0;) {
        to += rest % type.dim(a) * strides[a];
        rest /= type.dim(a);
      }
      const double shift = load_element(bias, type.dtype, i % type.dim(-1));
      store_element(y, type.dtype, to, load_element(y, type.dtype, to) + shift);
    }
  };
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const auto product = product_of(k);
  if (!product) return naive(k, at);
  return prepare_product(*product, at.in[0], at.in[1],
                         k.call.inputs.size() > 2 ? at.in[2] : nullptr, at.out[0], at.workspace);
}

}  // namespace

extern const Kernel cpu_linear = {
    .op = "linear",
    .prepare = cpu,
    .workspace =
        [](const KernelCall& k) {
          const auto product = product_of(k);
          return product ? product_workspace(*product)
                         : naive_contract_workspace(linear_map(k.call.inputs[0]), k);
        },
};

}  // namespace adjoint
