// Where the CUDA kernels of expert_linear and its gradient keep the order of rows between them.
// Known from shapes alone, because plans are made where no GPU is.
#pragma once
#include "kernels/kernel.h"
#include "ops/expert_linear.h"

namespace adjoint {

// Blocks keep a number for each expert in shared memory.
inline constexpr int64_t kMostExperts = 4096;

struct ExpertLayout {
  // `results`: of rows, kept apart before they are summed over the choices of a token.
  ExpertLayout(const ExpertRows& rows, Bytes results);
  Bytes order, starts, results, total;  // offsets in the workspace
};
ExpertLayout expert_linear_layout(const KernelCall& call);
ExpertLayout expert_grad_layout(const KernelCall& call);

}  // namespace adjoint
