#pragma once
#include "kernels/kernel.h"

namespace adjoint {

Launch block_decode_cuda(const KernelCall& call, const Pointers& at);
Launch block_encode_cuda(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
