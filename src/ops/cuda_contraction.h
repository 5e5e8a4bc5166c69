// A contraction of two objects on CUDA: through cuBLASLt where it has an algorithm, else a thread
// for each result. A third operand is an addend as large as the result, or a bias of its last axis.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

Launch contraction_cuda(const std::string& map, const KernelCall& call, const Pointers& at);
Bytes contraction_cuda_workspace(const std::string& map, const KernelCall& call);

}  // namespace adjoint
