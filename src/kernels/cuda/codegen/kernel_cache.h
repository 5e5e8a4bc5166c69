// Kernels that are compiled when a step is prepared (NVRTC), all at the same time. The same source
// is compiled once in a process.
#pragma once
#include <memory>
#include <string>

namespace adjoint {

class CompiledKernels;  // of one source

// Begins to compile; finish_kernels() waits.
std::shared_ptr<CompiledKernels> compile_kernels(std::string text);

// Launches the kernel `name` of the source with one parameter, a struct of plain values.
struct Grid {
  unsigned x = 1, y = 1, threads = 1;
  bool early = false;  // as Pointers say
};
class LaunchedKernel {
 public:
  LaunchedKernel(std::shared_ptr<CompiledKernels> kernels, std::string name, Grid grid)
      : kernels_(std::move(kernels)), name_(std::move(name)), grid_(grid) {}
  void operator()(const void* parameter, void* stream) const;

 private:
  std::shared_ptr<CompiledKernels> kernels_;
  std::string name_;
  Grid grid_;
  mutable const void* kernel_ = nullptr;  // found at the first launch
};

// The machine code of a source for an architecture such as "sm_90", or its PTX for one such as
// "compute_90"; MachineError with the compiler's own words. Needs no GPU.
std::string compile_text(const std::string& text, const std::string& architecture);

}  // namespace adjoint
