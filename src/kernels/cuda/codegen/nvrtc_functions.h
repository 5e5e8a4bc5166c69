// The functions of NVRTC that are called, opened with the library (device/library.h).
#pragma once
#include <nvrtc.h>

#include "device/cuda_libraries.h"

namespace adjoint {

LIBRARY_FUNCTION(nvrtc_library, nvrtcCompileProgram);
LIBRARY_FUNCTION(nvrtc_library, nvrtcCreateProgram);
LIBRARY_FUNCTION(nvrtc_library, nvrtcDestroyProgram);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetCUBIN);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetCUBINSize);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetErrorString);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetNumSupportedArchs);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetPTX);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetPTXSize);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetProgramLog);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetProgramLogSize);
LIBRARY_FUNCTION(nvrtc_library, nvrtcGetSupportedArchs);
LIBRARY_FUNCTION(nvrtc_library, nvrtcVersion);

}  // namespace adjoint
