// The linear map, and then the function: the CPU has no product that ends in one.
#include "kernels/product_then_map.h"

namespace adjoint {

namespace {}  // namespace

extern const Kernel cpu_linear_act = {
    .op = "linear_act",
    .prepare = [](const KernelCall& k,
                  const Pointers& at) { return linear_act_calls(k)->prepare(at); },
    .workspace = [](const KernelCall& k) { return linear_act_calls(k)->workspace(); },
};

}  // namespace adjoint
