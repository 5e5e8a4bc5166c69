#include "device/cuda_libraries.h"

namespace adjoint {

// Of the versions whose headers this binary was compiled with (src/CMakeLists.txt).
constinit Library cublaslt_library("libcublasLt.so." ADJOINT_CUDA_MAJOR,
                                   "cuBLAS of CUDA " ADJOINT_CUDA_MAJOR);
constinit Library nvrtc_library("libnvrtc.so." ADJOINT_CUDA_MAJOR,
                                "NVRTC of CUDA " ADJOINT_CUDA_MAJOR);
constinit Library cudnn_library("libcudnn.so." ADJOINT_CUDNN_MAJOR,
                                "cuDNN " ADJOINT_CUDNN_MAJOR " for CUDA " ADJOINT_CUDA_MAJOR);

void open_cuda_libraries() {
  cublaslt_library.open();
  nvrtc_library.open();  // before cuDNN, which uses the one that it finds open
  cudnn_library.open();
}

}  // namespace adjoint
