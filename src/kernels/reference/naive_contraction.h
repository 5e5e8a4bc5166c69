// Contractions in plain loops: any index map, dtypes and strides.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// In plain loops, any index map, sums in float64 (or float32 for float32).
Bytes naive_contract_workspace(const std::string& map, const KernelCall& call);
Launch prepare_naive_contract(const std::string& map, const KernelCall& call, const Pointers& at);

}  // namespace adjoint
