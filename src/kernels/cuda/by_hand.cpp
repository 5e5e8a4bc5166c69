// The CUDA kernels that are functions of their own in .cu files.
#include "kernels/cuda/block_codes.h"
#include "kernels/cuda/choose_token_layout.h"
#include "kernels/cuda/kernels.h"

namespace adjoint {

extern const Kernel cuda_balance_loss = {
    .op = "balance_loss", .prepare = balance_loss_cuda, .workspace = balance_loss_cuda_workspace};
extern const Kernel cuda_balance_loss_grad = {.op = "balance_loss_grad",
                                              .prepare = balance_loss_grad_cuda};
extern const Kernel cuda_block_decode = {.op = "block_decode", .prepare = block_decode_cuda};
extern const Kernel cuda_block_encode = {.op = "block_encode", .prepare = block_encode_cuda};
extern const Kernel cuda_cached_attention = {.op = "cached_attention",
                                             .prepare = cached_attention_cuda,
                                             .workspace = cached_attention_cuda_workspace};
extern const Kernel cuda_choose_token = {
    .op = "choose_token", .prepare = choose_token_cuda, .workspace = choose_token_cuda_workspace};
extern const Kernel cuda_code_linear = {.op = "code_linear", .prepare = code_linear_cuda};
extern const Kernel cuda_cross_entropy = {.op = "cross_entropy",
                                          .prepare = cross_entropy_cuda,
                                          .workspace = cross_entropy_cuda_workspace};
extern const Kernel cuda_cross_entropy_grad = {.op = "cross_entropy_grad",
                                               .prepare = cross_entropy_grad_cuda};
extern const Kernel cuda_cross_entropy_with_grad = {.op = "cross_entropy_with_grad",
                                                    .prepare = cross_entropy_with_grad_cuda,
                                                    .workspace = cross_entropy_cuda_workspace};
extern const Kernel cuda_dequantize = {.op = "dequantize", .prepare = dequantize_cuda};
extern const Kernel cuda_embed = {.op = "embed", .prepare = embed_cuda};
extern const Kernel cuda_embed_grad = {
    .op = "embed_grad", .prepare = embed_grad_cuda, .workspace = embed_grad_cuda_workspace};
extern const Kernel cuda_expert_linear = {.op = "expert_linear",
                                          .prepare = expert_linear_cuda,
                                          .workspace = expert_linear_cuda_workspace};
extern const Kernel cuda_expert_linear_grad = {.op = "expert_linear_grad",
                                               .prepare = expert_linear_grad_cuda,
                                               .workspace = expert_linear_grad_cuda_workspace};
extern const Kernel cuda_gather = {.op = "gather", .prepare = gather_cuda};
extern const Kernel cuda_gather_grad = {.op = "gather_grad", .prepare = gather_grad_cuda};
extern const Kernel cuda_merge = {.op = "merge", .prepare = reshape_cuda};
extern const Kernel cuda_move = {.op = "move", .prepare = move_cuda};
extern const Kernel cuda_pad = {.op = "pad", .prepare = pad_cuda};
extern const Kernel cuda_part = {.op = "part", .prepare = part_cuda};
extern const Kernel cuda_part_counter = {.op = "part_counter", .prepare = part_counter_cuda};
extern const Kernel cuda_put_rows = {.op = "put_rows", .prepare = put_rows_cuda};
extern const Kernel cuda_route = {.op = "route", .prepare = route_cuda};
extern const Kernel cuda_rows_at = {.op = "rows_at", .prepare = rows_at_cuda};
extern const Kernel cuda_slice = {.op = "slice", .prepare = slice_cuda};
extern const Kernel cuda_split = {.op = "split", .prepare = reshape_cuda};
extern const Kernel cuda_squeeze = {.op = "squeeze", .prepare = reshape_cuda};
extern const Kernel cuda_top_k = {.op = "top_k", .prepare = top_k_cuda};
extern const Kernel cuda_transpose = {.op = "transpose", .prepare = transpose_cuda};
extern const Kernel cuda_unsqueeze = {.op = "unsqueeze", .prepare = reshape_cuda};

}  // namespace adjoint
