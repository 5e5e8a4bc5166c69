// Why a GPU cannot be used, one sentence per reason. The sentences are functions of what was found,
// so that they can be tested on a machine without a GPU.
#pragma once
#include <string>

#include "base/bytes.h"

namespace adjoint {

// What CUDA reports of a machine. Versions are CUDA's numbers, 13000 for 13.0; 0: none.
struct GpuFound {
  int driver = 0, runtime = 0;
  int count = 0;             // of GPUs
  std::string trouble = {};  // CUDA's message, if it could not count GPUs
  std::string name = {};     // of the first, and its compute capability
  int major = 0, minor = 0;
};

std::string cuda_version(int number);  // 13000: "13.0"

// Empty where the GPU can be used.
std::string why_no_gpu(const GpuFound& found);

std::string too_little_gpu_memory(Bytes wanted, Bytes free);

}  // namespace adjoint
