// For a binary without CUDA: opening the GPU fails before any of these can be called.
#include "base/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/block_codes.h"
#include "kernels/cuda/collectives.h"
#include "kernels/cuda/cublaslt/product.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/messages.h"
#include "kernels/cuda/thin_product.h"

namespace adjoint {

namespace {
[[noreturn]] void refuse() { throw MachineError("this adjoint was built without CUDA"); }
}  // namespace

#define REFUSED(kernel) \
  Launch kernel(const KernelCall&, const Pointers&) { refuse(); }
REFUSED(all_gather_cuda)
REFUSED(all_reduce_cuda)
REFUSED(balance_loss_cuda)
REFUSED(balance_loss_grad_cuda)
REFUSED(block_decode_cuda)
REFUSED(block_encode_cuda)
REFUSED(cached_attention_cuda)
REFUSED(choose_token_cuda)
REFUSED(code_linear_cuda)
REFUSED(cross_entropy_cuda)
REFUSED(cross_entropy_grad_cuda)
REFUSED(cross_entropy_with_grad_cuda)
REFUSED(embed_cuda)
REFUSED(embed_grad_cuda)
REFUSED(expert_linear_cuda)
REFUSED(expert_linear_grad_cuda)
REFUSED(gather_cuda)
REFUSED(gather_grad_cuda)
REFUSED(pad_cuda)
REFUSED(send_cuda)
REFUSED(slice_cuda)
REFUSED(move_cuda)
REFUSED(reshape_cuda)
REFUSED(transpose_cuda)
REFUSED(part_cuda)
REFUSED(part_counter_cuda)
REFUSED(put_rows_cuda)
REFUSED(receive_cuda)
REFUSED(reduce_scatter_cuda)
REFUSED(rows_at_cuda)
REFUSED(top_k_cuda)
REFUSED(route_cuda)
REFUSED(dequantize_cuda)
#undef REFUSED
Launch naive_contract_cuda(const std::string&, const KernelCall&, const Pointers&) { refuse(); }
Launch copy_cuda(const Type&, const Strides&, const void*, const Type&, const Strides&, void*,
                 void*) {
  refuse();
}
Launch thin_product_cuda(const Product&, const ProductPointers&, const Pointers&) { refuse(); }
Launch thin_experts_cuda(const KernelCall&, const Pointers&) { refuse(); }
Launch clear_cuda(const Type&, const Strides&, void*, void*) { refuse(); }
std::optional<Launch> tuned_product_cuda(const Product&, const ProductPointers&, const Pointers&,
                                         bool, bool) {
  refuse();
}
Launch prepare_attention_cuda(const AttentionPlaces&, void*, const AttentionWay&, CUstream_st*) {
  refuse();
}
Launch prepare_attention_grad_cuda(const AttentionGradPlaces&, void*, const AttentionWay&, bool,
                                   CUstream_st*) {
  refuse();
}

}  // namespace adjoint
