// A product as oneDNN gives it to anyone who asks: the primitive that it chooses for the shape, the
// strides and the dtype, run on the same buffers again and again. What our products are held to.
#pragma once
#include <optional>

#include "kernels/kernel.h"
#include "ops/op_def.h"

namespace adjoint {

// The second operand as it lies, or as oneDNN likes it best, laid out before the loop.
enum class BareLayout : uint8_t { kPlain, kPacked };

// Nothing when the call is no product, or none that oneDNN multiplies here in its own dtype. Of a
// product with more to it (an activation) this is the product alone. The buffers must outlive it.
std::optional<Launch> bare_product(const KernelCall& call, const Pointers& at, BareLayout layout);

}  // namespace adjoint
