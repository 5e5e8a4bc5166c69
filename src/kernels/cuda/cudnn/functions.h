// The functions of cuDNN that are called, opened with the library (device/library.h).
#pragma once
#include <cudnn.h>

#include "device/cuda_libraries.h"

namespace adjoint {

LIBRARY_FUNCTION(cudnn_library, cudnnBackendCreateDescriptor);
LIBRARY_FUNCTION(cudnn_library, cudnnBackendDestroyDescriptor);
LIBRARY_FUNCTION(cudnn_library, cudnnBackendExecute);
LIBRARY_FUNCTION(cudnn_library, cudnnBackendFinalize);
LIBRARY_FUNCTION(cudnn_library, cudnnBackendGetAttribute);
LIBRARY_FUNCTION(cudnn_library, cudnnBackendSetAttribute);
LIBRARY_FUNCTION(cudnn_library, cudnnCreate);
LIBRARY_FUNCTION(cudnn_library, cudnnGetErrorString);
LIBRARY_FUNCTION(cudnn_library, cudnnGetLastErrorString);
LIBRARY_FUNCTION(cudnn_library, cudnnGetVersion);
LIBRARY_FUNCTION(cudnn_library, cudnnSetStream);

}  // namespace adjoint
