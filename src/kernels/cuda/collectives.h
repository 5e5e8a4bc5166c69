// Collectives of a GPU's memory, prepared as kernels/cuda/kernels.h says of all kernels; but where
// ranks share a GPU, a launch waits on the host for the other ranks.
#pragma once
#include "kernels/cuda/collective_pieces.h"

namespace adjoint {

// Room for packed pieces. NCCL wants pieces of one size, so those that are not are packed, too.
Bytes packed_on_cuda(const Pieces& pieces);

Launch all_gather_cuda(const KernelCall& call, const Pointers& at);
Launch all_reduce_cuda(const KernelCall& call, const Pointers& at);
Launch reduce_scatter_cuda(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
