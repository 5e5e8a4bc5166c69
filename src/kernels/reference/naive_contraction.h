// Contractions in plain loops: any index map, dtypes and strides.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Any index map, dtypes and strides. Sums are float64.
Bytes naive_contract_workspace(const std::string& map, const KernelCall& call);
Launch prepare_naive_contract(const std::string& map, const KernelCall& call, const Pointers& at);

}  // namespace adjoint
