#include <algorithm>

#include "device/cuda_check.h"
#include "device/gpu.h"

namespace adjoint {

namespace {

constexpr int kLeastMajor = 8;  // bf16 products, and kernels of this binary

Gpu find_gpu() {
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    throw MachineError("there is no NVIDIA driver on this machine: say --device cpu");
  }
  const auto version = [](int v) { return join_parts(v / 1000, ".", v % 1000 / 10); };
  if (driver / 1000 < runtime / 1000) {
    throw MachineError(join_parts("the NVIDIA driver is too old: it speaks CUDA ", version(driver),
                                  ", this adjoint was built for ", version(runtime)));
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    throw MachineError(
        join_parts("no GPU can be used on this machine (",
                   status == cudaSuccess ? "there is none" : cudaGetErrorString(status),
                   "): say --device cpu"));
  }
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "reading its properties");
  if (properties.major < kLeastMajor) {
    throw MachineError(join_parts(properties.name, " has compute capability ", properties.major,
                                  ".", properties.minor, ", Adjoint's kernels want 8.0 or newer"));
  }
  check_cuda(cudaSetDevice(0), "being chosen");
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory = {static_cast<int64_t>(properties.totalGlobalMem)}};
}

}  // namespace

bool has_cuda() { return true; }

bool has_gpu() {
  try {
    open_gpu();
  } catch (const MachineError&) {
    return false;
  }
  return true;
}

const Gpu& open_gpu() {
  static const Gpu gpu = find_gpu();
  return gpu;
}

Bytes free_gpu_memory() {
  open_gpu();
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "counting its memory");
  return {static_cast<int64_t>(free)};
}

class GpuStream::Recording {
 public:
  explicit Recording(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "preparing a recorded step");
  }
  ~Recording() { cudaGraphExecDestroy(exec_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

GpuStream::GpuStream() {
  open_gpu();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_ = stream;
}
GpuStream::~GpuStream() { cudaStreamDestroy(cuda_stream(stream_)); }

void GpuStream::copy(void* to, const void* from, Bytes size) {
  check_cuda(cudaMemcpyAsync(to, from, size.count, cudaMemcpyDefault, cuda_stream(stream_)),
             "copying");
}
void GpuStream::fill(void* to, std::byte with, Bytes size) {
  check_cuda(cudaMemsetAsync(to, static_cast<int>(with), size.count, cuda_stream(stream_)),
             "filling memory");
}
void GpuStream::synchronize() { check_cuda(cudaStreamSynchronize(cuda_stream(stream_)), "a step"); }
void GpuStream::wait_for(const GpuClock& clock, size_t mark) {
  check_cuda(
      cudaStreamWaitEvent(cuda_stream(stream_), static_cast<cudaEvent_t>(clock.events_[mark]), 0),
      "waiting for a copy");
}

void GpuStream::begin_recording() {
  check_cuda(cudaStreamBeginCapture(cuda_stream(stream_), cudaStreamCaptureModeThreadLocal),
             "beginning to record a step");
}
std::shared_ptr<GpuStream::Recording> GpuStream::end_recording() {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(cuda_stream(stream_), &graph), "recording a step");
  return std::make_shared<Recording>(graph);
}
void GpuStream::launch(const Recording& recording) {
  check_cuda(cudaGraphLaunch(recording.exec(), cuda_stream(stream_)), "launching a step");
}

GpuClock::GpuClock(size_t marks) {
  for (size_t i = 0; i < marks; ++i) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "making a clock");
    events_.push_back(event);
  }
}
GpuClock::~GpuClock() {
  for (void* event : events_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
void GpuClock::mark(size_t i, GpuStream& stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(events_[i]), cuda_stream(stream.handle())),
             "reading its clock");
}
void GpuClock::wait(size_t i) const {
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(events_[i])), "a step");
}
double GpuClock::seconds(size_t from, size_t to) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(events_[from]),
                                  static_cast<cudaEvent_t>(events_[to])),
             "reading its clock");
  return milliseconds * 1e-3;
}

namespace {
[[noreturn]] void refuse_memory(Bytes size, const std::string& of) {
  cudaGetLastError();  // it is said here, and the next call is not to blame
  throw MachineError(join_parts("this wants ", human(size), " (", size.count, " bytes) of ", of,
                                ": take a smaller --batch, or a stack that --fit chooses"));
}
size_t at_least_one(Bytes size) { return static_cast<size_t>(std::max<int64_t>(1, size.count)); }
}  // namespace

void* allocate_gpu(Bytes size) {
  open_gpu();
  void* data = nullptr;
  if (cudaMalloc(&data, at_least_one(size)) == cudaSuccess) return data;
  cudaGetLastError();
  const Bytes free = free_gpu_memory();
  refuse_memory(
      size, join_parts("GPU memory, where ", human(free), " (", free.count, " bytes) are free"));
}
void* allocate_pinned(Bytes size) {
  open_gpu();
  void* data = nullptr;
  if (cudaMallocHost(&data, at_least_one(size)) == cudaSuccess) return data;
  refuse_memory(size, "pinned host memory");
}
void release_gpu(void* data) { cudaFree(data); }
void release_pinned(void* data) { cudaFreeHost(data); }

}  // namespace adjoint
