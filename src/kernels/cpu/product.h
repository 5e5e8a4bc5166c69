// Matrix products on the CPU, through oneDNN. A product is prepared once: its primitive, its
// layouts and its scratchpad, which is ours to place (user mode).
#pragma once
#include "kernels/product.h"

namespace adjoint {

// The product that a call with this map asks of the CPU, without bias or addend; nothing where
// plain loops do it. Its operands lie densely, so which way it is multiplied depends on shapes,
// dtypes and the cap on workspaces, and never on where a plan has put them.
std::optional<Product> product_on_cpu(const std::string& map, const KernelCall& call);

Bytes product_workspace(const Product& product);
Launch prepare_product(const Product& product, const void* a, const void* b, const void* bias,
                       void* c, void* workspace);

}  // namespace adjoint
