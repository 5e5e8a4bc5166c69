// Sums over rows in the source of a body. A thread adds up in `acc`, of each output that is a sum,
// what its rows give; a block's sums go to the workspace, where a second kernel adds them up.
#pragma once
#include "kernels/cuda/codegen/body.h"

namespace adjoint::cuda_source {

std::string declared_sums(const CudaCut& cut);  // before the first row
// Behind the last row.
std::string left_sums(const CudaCut& cut, const std::vector<bool>& out_chunks);
std::string finish_kernel(const CudaCut& cut);  // nothing where no sum has parts in several blocks

}  // namespace adjoint::cuda_source
