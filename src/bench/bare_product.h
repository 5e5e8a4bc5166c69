// A product by oneDNN alone: the primitive that it chooses for shape, strides and dtype, run
// repeatedly on the same buffers. The bar for our products.
#pragma once
#include <optional>

#include "kernels/kernel.h"
#include "ops/op_def.h"

namespace adjoint {

// The layout of the second operand: as it is, or packed as oneDNN prefers, before the loop.
enum class BareLayout : uint8_t { kPlain, kPacked };

// Nothing if the call is not a product, or oneDNN does not support its dtype here. Of a product
// with an activation this is the product alone. The buffers must outlive the result.
std::optional<Launch> bare_product(const KernelCall& call, const Pointers& at, BareLayout layout);

}  // namespace adjoint
