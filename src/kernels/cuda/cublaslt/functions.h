// The functions of cuBLASLt that are called, opened with the library (device/library.h).
// Its headers define `...Init` inline, by way of the `..._internal` that are listed here.
#pragma once
#include <cublasLt.h>

#include "device/cuda_libraries.h"

namespace adjoint {

LIBRARY_FUNCTION(cublaslt_library, cublasLtCreate);
LIBRARY_FUNCTION(cublaslt_library, cublasLtGetStatusString);
LIBRARY_FUNCTION(cublaslt_library, cublasLtGetVersion);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmul);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulAlgoCheck);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulAlgoConfigGetAttribute);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulAlgoGetHeuristic);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulDescInit_internal);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulDescSetAttribute);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulPreferenceInit_internal);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatmulPreferenceSetAttribute);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatrixLayoutInit_internal);
LIBRARY_FUNCTION(cublaslt_library, cublasLtMatrixLayoutSetAttribute);

}  // namespace adjoint
