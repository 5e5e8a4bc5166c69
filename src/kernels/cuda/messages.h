// Messages between two ranks (ops/message.h) in a GPU's memory.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Of a call with several objects: all of them, one behind the other, as they travel.
Bytes packed_message(const std::vector<Type>& objects);

Launch receive_cuda(const KernelCall& call, const Pointers& at);
Launch send_cuda(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
