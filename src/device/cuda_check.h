// The status of a CUDA call. Only files that are built with CUDA include this.
#pragma once
#include <cuda_runtime_api.h>

#include "base/error.h"

namespace adjoint {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw MachineError(join_parts("the GPU failed at ", what, ": ", cudaGetErrorString(status)));
}
inline cudaStream_t cuda_stream(void* handle) { return static_cast<cudaStream_t>(handle); }

}  // namespace adjoint
