// The CUDA kernels of the ops that have no body, each prepared as its op's CPU kernel is. Pointers
// are to device memory, except those of `move`, which may be to pinned host memory as well; every
// launch goes to the stream of its Pointers, allocates nothing and waits for nothing.
#pragma once
#include <string>

#include "kernels/kernel.h"

namespace adjoint {

Launch balance_loss_cuda(const KernelCall& call, const Pointers& at);
Launch balance_loss_grad_cuda(const KernelCall& call, const Pointers& at);
Launch cached_attention_cuda(const KernelCall& call, const Pointers& at);
Launch choose_token_cuda(const KernelCall& call, const Pointers& at);
Launch code_linear_cuda(const KernelCall& call, const Pointers& at);
Launch cross_entropy_cuda(const KernelCall& call, const Pointers& at);
Launch cross_entropy_grad_cuda(const KernelCall& call, const Pointers& at);
Launch cross_entropy_with_grad_cuda(const KernelCall& call, const Pointers& at);
Launch embed_cuda(const KernelCall& call, const Pointers& at);
Launch embed_grad_cuda(const KernelCall& call, const Pointers& at);
Launch expert_linear_cuda(const KernelCall& call, const Pointers& at);
Launch expert_linear_grad_cuda(const KernelCall& call, const Pointers& at);
Launch gather_cuda(const KernelCall& call, const Pointers& at);
Launch gather_grad_cuda(const KernelCall& call, const Pointers& at);
Launch pad_cuda(const KernelCall& call, const Pointers& at);
Launch slice_cuda(const KernelCall& call, const Pointers& at);
Launch move_cuda(const KernelCall& call, const Pointers& at);
Launch reshape_cuda(const KernelCall& call, const Pointers& at);  // split, merge and their like
Launch transpose_cuda(const KernelCall& call, const Pointers& at);
Launch part_cuda(const KernelCall& call, const Pointers& at);
Launch part_counter_cuda(const KernelCall& call, const Pointers& at);
Launch put_rows_cuda(const KernelCall& call, const Pointers& at);
Launch rows_at_cuda(const KernelCall& call, const Pointers& at);
Launch top_k_cuda(const KernelCall& call, const Pointers& at);
Launch route_cuda(const KernelCall& call, const Pointers& at);
Launch dequantize_cuda(const KernelCall& call, const Pointers& at);

// Any index map, dtypes and strides, a thread for each result: what no library takes. A third
// operand is contract's addend, or the bias of any other op.
Launch naive_contract_cuda(const std::string& map, const KernelCall& call, const Pointers& at);

// As prepare_copy (kernels/cpu/copy.h); and all bits of an object to 0.
Launch copy_cuda(const Type& from_type, const Strides& from_strides, const void* from,
                 const Type& to_type, const Strides& to_strides, void* to, void* stream);
Launch clear_cuda(const Type& type, const Strides& strides, void* to, void* stream);

// What they need beside their operands, from shapes alone: these are built without CUDA too.
Bytes balance_loss_cuda_workspace(const KernelCall& call);
Bytes cached_attention_cuda_workspace(const KernelCall& call);
Bytes cross_entropy_cuda_workspace(const KernelCall& call);  // with its gradient or without
Bytes embed_grad_cuda_workspace(const KernelCall& call);
Bytes expert_linear_cuda_workspace(const KernelCall& call);
Bytes expert_linear_grad_cuda_workspace(const KernelCall& call);

}  // namespace adjoint
