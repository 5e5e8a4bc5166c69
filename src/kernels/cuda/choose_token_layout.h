// How the logits of one row are shared out where the best of them is looked for.
#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace adjoint {

// Blocks that look for the best token of a row, and leave what they found in the workspace. As many
// as read a row of 128256 logits with a few loads a thread.
constexpr int64_t kBestBlocks = 64;

Bytes choose_token_cuda_workspace(const KernelCall& call);

}  // namespace adjoint
