// One product by one primitive of oneDNN: in float32, and in bf16 where the machine multiplies
// that. Of oneDNN's implementations the first is taken whose workspace is within the product's cap.
#pragma once
#include <functional>
#include <optional>

#include "kernels/product.h"

namespace adjoint {

// The bytes that it takes beside its operands; nothing where oneDNN has no way for the dtype.
std::optional<Bytes> matmul_workspace(const Product& product);
Launch prepare_matmul(const Product& product, const void* a, const void* b, const void* bias,
                      void* c, void* workspace);

// The same product of operands that are elsewhere in every call, without a bias. Where they are is
// noted in the prepared primitive, so two calls must not run at once.
using MatmulAt = std::function<void(const void* a, const void* b, void* c)>;
MatmulAt prepare_matmul_at(const Product& product, void* workspace);

}  // namespace adjoint
