// The libraries of CUDA that are opened when a GPU is asked for. Their functions are listed where
// they are used: kernels/cuda/cublaslt/functions.h, kernels/cuda/cudnn/functions.h,
// kernels/cuda/codegen/nvrtc_functions.h. The runtime is linked into the binary, and itself opens
// the driver.
#pragma once
#include "device/library.h"

namespace adjoint {

extern Library cublaslt_library, nvrtc_library, cudnn_library;

// Opens all of them, so that what is missing is told before any work is done.
void open_cuda_libraries();

}  // namespace adjoint
