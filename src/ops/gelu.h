// The gradient of gelu as a body of its own: some devices have it as the end of a product.
#pragma once
#include "body/body.h"

namespace adjoint {

Body gelu_gradient();  // p gelu'(x), by tanh, as gradients are written

}  // namespace adjoint
