// A binary without CUDA compiles no kernels; whoever opens the GPU was refused before.
#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/kernel_cache.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {
[[noreturn]] void refuse() { throw MachineError("this adjoint was built without CUDA"); }
}  // namespace

class CompiledKernels {};

std::shared_ptr<CompiledKernels> compile_kernels(std::string) { refuse(); }
void LaunchedKernel::operator()(const void*, void*) const { refuse(); }
std::string compile_text(const std::string&, const std::string&) { refuse(); }
void finish_kernels() {}

}  // namespace adjoint
