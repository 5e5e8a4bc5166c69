// Which product a call asks of oneDNN.
#include "kernels/cpu/product.h"

#include "base/error.h"
#include "ops/layout.h"

namespace adjoint {

std::optional<Product> product_on_cpu(const std::string& map, const KernelCall& k) {
  const std::vector<Type>& in = k.call.inputs;
  if (in[0].dtype == Dtype::kF64) return std::nullopt;
  CHECK(lies_densely(in[0], k.in_strides[0]) && lies_densely(in[1], k.in_strides[1]) &&
            lies_densely(k.outputs[0], k.out_strides[0]),
        "the operands and the result of a product on the CPU lie densely");
  auto product = as_product(map, in[0], dense_strides(in[0]), in[1], dense_strides(in[1]),
                            k.outputs[0], dense_strides(k.outputs[0]));
  if (product) product->workspace_cap = k.workspace_cap;
  return product;
}

}  // namespace adjoint
