// The architecture that generated kernels are compiled for, as a function of the GPU and of what
// the compiler supports; and the message if the driver rejects the result.
#pragma once
#include <span>
#include <string>

namespace adjoint {

// Numbers are CUDA's: 90 is compute capability 9.0. "sm_90", machine code, where the compiler knows
// the GPU; else "compute_86", PTX of the newest that it knows and the GPU can run, which the driver
// translates. Empty where there is none.
std::string kernel_architecture(int gpu, std::span<const int> known);

// Versions are CUDA's too, see cuda_version; `trouble` is the driver's own words.
std::string kernel_not_taken(int driver, int compiler, const std::string& architecture,
                             const std::string& trouble);

}  // namespace adjoint
