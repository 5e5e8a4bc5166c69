// Why a GPU cannot be used, or not for this, in one sentence each: said of what was found, so that
// a machine without a GPU can tell that they are right.
#pragma once
#include <string>

#include "base/bytes.h"

namespace adjoint {

// What CUDA says of a machine. Versions are CUDA's numbers, 13000 for 13.0; 0: there is none.
struct GpuFound {
  int driver = 0, runtime = 0;
  int count = 0;             // of GPUs
  std::string trouble = {};  // CUDA's own words, where it could not even count
  std::string name = {};     // of the first, and its compute capability
  int major = 0, minor = 0;
};

std::string cuda_version(int number);  // 13000: "13.0"

// Empty where the GPU can be used.
std::string why_no_gpu(const GpuFound& found);

std::string too_little_gpu_memory(Bytes wanted, Bytes free);

}  // namespace adjoint
