// Where the CUDA kernels of expert_linear and its gradient keep the order of rows between them, and
// sums that are not whole yet. Known from shapes alone, because plans are made where no GPU is.
#pragma once
#include "kernels/kernel.h"
#include "ops/expert_linear.h"

namespace adjoint {

// Blocks keep a number for each expert in shared memory.
inline constexpr int64_t kMostExperts = 4096;

// The results of a block of tensor cores' kernels, and the terms that it takes at once.
inline constexpr int kExpertTileRows = 128, kExpertTileColumns = 256, kExpertTileTerms = 64;

struct ExpertLayout {
  // `results`: of rows, kept apart before they are summed over the choices of a token; or, of the
  // gradient, sums of a part of an expert's rows.
  ExpertLayout(const ExpertRows& rows, Bytes results);
  Bytes order, starts, results, total;  // offsets in the workspace
};
ExpertLayout expert_linear_layout(const KernelCall& call);
ExpertLayout expert_grad_layout(const KernelCall& call);

// Into how many groups the gradient's steps are cut (RowSumTiles); 0 where it is not by tiles.
int64_t expert_grad_groups(const KernelCall& call);

}  // namespace adjoint
