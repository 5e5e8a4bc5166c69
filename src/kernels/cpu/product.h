// Matrix products on the CPU, through oneDNN. A product is prepared once: its primitive, its
// layouts and its scratchpad, which is ours to place (user mode).
#pragma once
#include "kernels/product.h"

namespace adjoint {

// The product for a call with this map, without bias or addend; nothing if plain loops compute it.
// Its operands are dense, so the algorithm depends on shapes, dtypes and the cap on workspaces, and
// never on where a plan has placed them.
std::optional<Product> product_on_cpu(const std::string& map, const KernelCall& call);

Bytes product_workspace(const Product& product);
Launch prepare_product(const Product& product, const void* a, const void* b, const void* bias,
                       void* c, void* workspace);

}  // namespace adjoint
