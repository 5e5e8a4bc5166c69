// Matrix products of the float64 reference: plain loops, one sum per result, in the order of the
// summed axis. Operands are first copied into panels, so that the loops run over neighbouring
// numbers. It shares nothing with the products that it judges.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// One letter of an index map: its size, and its stride in each tensor, 0 where it is absent.
struct ProductLetter {
  int64_t size, a, b, c, addend;
};

// c = a b (+ addend), all float64. `kept` are the letters of c, `summed` the others. The panels lie
// in the workspace.
Bytes float64_product_workspace(const std::vector<ProductLetter>& kept,
                                const std::vector<ProductLetter>& summed);
Launch prepare_float64_product(const std::vector<ProductLetter>& kept,
                               const std::vector<ProductLetter>& summed, const Pointers& at);

}  // namespace adjoint
