#include "kernels/cuda/codegen/kernel_architecture.h"

#include <algorithm>

#include "base/error.h"
#include "device/gpu_refusals.h"

namespace adjoint {

std::string kernel_architecture(int gpu, std::span<const int> known) {
  int newest = 0;
  for (const int one : known) {
    if (one <= gpu) newest = std::max(newest, one);
  }
  if (newest == 0) return "";
  return join_parts(newest == gpu ? "sm_" : "compute_", newest);
}

std::string kernel_not_taken(int driver, int compiler, const std::string& architecture,
                             const std::string& trouble) {
  const std::string is = cuda_version(driver), wants = cuda_version(compiler);
  return join_parts(
      "the NVIDIA driver, which speaks CUDA ", is, ", does not take a kernel that NVRTC ", wants,
      " compiled for ", architecture, " (", trouble, ")",
      driver < compiler
          ? ": update the driver to CUDA " + wants + ", or build adjoint with CUDA " + is
          : "");
}

}  // namespace adjoint
