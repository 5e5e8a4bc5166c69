// The product, and then the function: the CPU has no product that ends in one.
#include "kernels/product_then_map.h"

namespace adjoint {

namespace {}  // namespace

extern const Kernel cpu_contract_map = {
    .op = "contract_map",
    .prepare = [](const KernelCall& k,
                  const Pointers& at) { return contract_map_calls(k)->prepare(at); },
    .workspace = [](const KernelCall& k) { return contract_map_calls(k)->workspace(); },
};

}  // namespace adjoint
