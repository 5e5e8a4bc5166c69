#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_check.h"
#include "device/gpu.h"
#include "device/gpu_refusals.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/kernel_architecture.h"
#include "kernels/cuda/codegen/kernel_cache.h"
#include "kernels/cuda/codegen/nvrtc_functions.h"
#include "kernels/kernel.h"

namespace adjoint {

namespace {

void check(nvrtcResult status, const char* what) {
  if (status == NVRTC_SUCCESS) return;
  throw MachineError(join_parts("NVRTC failed at ", what, ": ", nvrtcGetErrorString(status)));
}

int compiler_version() {  // as CUDA counts
  int major = 0, minor = 0;
  check(nvrtcVersion(&major, &minor), "saying its version");
  return 1000 * major + 10 * minor;
}

std::string architecture_of(const Gpu& gpu) {
  int count = 0;
  check(nvrtcGetNumSupportedArchs(&count), "saying what it knows");
  std::vector<int> known(count);
  check(nvrtcGetSupportedArchs(known.data()), "saying what it knows");
  const std::string architecture = kernel_architecture(10 * gpu.major + gpu.minor, known);
  if (!architecture.empty()) return architecture;
  throw MachineError(join_parts("NVRTC ", cuda_version(compiler_version()),
                                " compiles nothing that ", gpu.name, " (compute capability ",
                                gpu.major, ".", gpu.minor,
                                ") runs: build adjoint with an older CUDA"));
}

// As many compilers at the same time as there are cores: each takes some hundred megabytes.
std::string compile_in_turn(const std::string& text, const std::string& architecture) {
  static std::counting_semaphore<> cores(std::max(1u, std::thread::hardware_concurrency()));
  cores.acquire();
  struct Release {
    ~Release() { cores.release(); }
  } const release;
  return compile_text(text, architecture);
}

}  // namespace

class CompiledKernels {
 public:
  CompiledKernels(const std::string& text, const std::string& architecture)
      : architecture_(architecture),
        compiling_(std::async(std::launch::async, compile_in_turn, text, architecture)) {}
  ~CompiledKernels() {
    if (library_) cudaLibraryUnload(library_);
  }
  CompiledKernels(const CompiledKernels&) = delete;
  CompiledKernels& operator=(const CompiledKernels&) = delete;

  void finish() {
    if (library_) return;
    code_ = compiling_.get();
    check(cudaLibraryLoadData(&library_, code_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "loading a kernel");
  }
  const void* find(const std::string& name) {
    cudaKernel_t kernel = nullptr;
    check(cudaLibraryGetKernel(&kernel, library_, name.c_str()), "finding a kernel");
    return kernel;
  }
  // A driver may put off reading the code until its first launch, and refuse it then.
  void check(cudaError_t status, const char* what) const {
    if (!is_refusal(status)) return check_cuda(status, what);
    int driver = 0;
    cudaDriverGetVersion(&driver);
    throw MachineError(
        kernel_not_taken(driver, compiler_version(), architecture_, cudaGetErrorString(status)));
  }

 private:
  // The driver does not know the code, as opposed to failing with it.
  static bool is_refusal(cudaError_t status) {
    return status == cudaErrorUnsupportedPtxVersion || status == cudaErrorInvalidPtx ||
           status == cudaErrorInvalidKernelImage || status == cudaErrorNoKernelImageForDevice ||
           status == cudaErrorJitCompilerNotFound;
  }

  std::string architecture_;
  std::future<std::string> compiling_;
  std::string code_;
  cudaLibrary_t library_ = nullptr;
};

namespace {

struct Cache {
  std::mutex mutex;
  // Kept for good: the next run's kernels are mostly the same, and each is some kilobytes.
  std::map<std::string, std::shared_ptr<CompiledKernels>> by_text;
  std::vector<std::shared_ptr<CompiledKernels>> unfinished;
};
Cache& cache() {
  static Cache& all = *new Cache;  // never destroyed: at exit CUDA may be gone
  return all;
}

}  // namespace

std::string compile_text(const std::string& text, const std::string& architecture) {
  nvrtcProgram program = nullptr;
  check(nvrtcCreateProgram(&program, text.c_str(), "body.cu", 0, nullptr, nullptr),
        "reading a kernel");
  const std::string target = "--gpu-architecture=" + architecture;
  // One rounding per operation, as on the CPU.
  const char* options[] = {target.c_str(), "--std=c++17", "--fmad=false", "-default-device"};
  const nvrtcResult status = nvrtcCompileProgram(program, std::size(options), options);
  if (status == NVRTC_SUCCESS) {
    const bool ptx = architecture.starts_with("compute_");
    size_t size = 0;
    check((ptx ? nvrtcGetPTXSize : nvrtcGetCUBINSize)(program, &size), "compiling a kernel");
    std::string code(size, ' ');
    check((ptx ? nvrtcGetPTX : nvrtcGetCUBIN)(program, code.data()), "compiling a kernel");
    nvrtcDestroyProgram(&program);
    return code;
  }
  size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  std::string log(size, ' ');
  nvrtcGetProgramLog(program, log.data());
  nvrtcDestroyProgram(&program);
  throw MachineError("a generated kernel does not compile, which is a mistake of Adjoint's: " +
                     log);
}

std::shared_ptr<CompiledKernels> compile_kernels(std::string text) {
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<CompiledKernels>& known = all.by_text[text];
  if (known) return known;
  static const std::string architecture = architecture_of(open_gpu());
  known = std::make_shared<CompiledKernels>(text, architecture);
  all.unfinished.push_back(known);
  return known;
}

void finish_kernels() {
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  for (const auto& kernels : std::exchange(all.unfinished, {})) kernels->finish();
}

void LaunchedKernel::operator()(const void* parameter, void* stream) const {
  if (!kernel_) kernel_ = kernels_->find(name_);
  void* parameters[] = {const_cast<void*>(parameter)};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid_.x, grid_.y);
  config.blockDim = dim3(grid_.threads);
  config.stream = cuda_stream(stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = grid_.early ? 1 : 0;
  kernels_->check(cudaLaunchKernelExC(&config, kernel_, parameters), "launching a kernel");
}

}  // namespace adjoint
