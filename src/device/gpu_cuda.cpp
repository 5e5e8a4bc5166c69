#include <algorithm>

#include "device/cuda_check.h"
#include "device/cuda_libraries.h"
#include "device/gpu.h"
#include "device/gpu_refusals.h"

namespace adjoint {

namespace {

Gpu find_gpu() {
  GpuFound found;
  cudaRuntimeGetVersion(&found.runtime);
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&found.count); status != cudaSuccess) {
    found.count = 0;
    found.trouble = cudaGetErrorString(status);
  }
  cudaDeviceProp properties = {};
  if (found.count > 0) {
    check_cuda(cudaGetDeviceProperties(&properties, 0), "reading its properties");
    found.name = properties.name;
    found.major = properties.major;
    found.minor = properties.minor;
  }
  if (const std::string why = why_no_gpu(found); !why.empty()) throw Error(why);
  open_cuda_libraries();
  check_cuda(cudaSetDevice(0), "being chosen");
  return {.name = found.name,
          .major = found.major,
          .minor = found.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory = {static_cast<int64_t>(properties.totalGlobalMem)}};
}

}  // namespace

bool has_cuda() { return true; }

bool has_gpu() {
  try {
    open_gpu();
  } catch (const std::runtime_error&) {  // not here, or broken
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
      "waiting for a stream");
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
void GpuStream::drop_recording() noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(cuda_stream(stream_), &graph);  // whatever it says of a torn recording
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();  // the next call is not to blame
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
size_t at_least_one(Bytes size) { return static_cast<size_t>(std::max<int64_t>(1, size.count)); }
}  // namespace

void* allocate_gpu(Bytes size) {
  open_gpu();
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, at_least_one(size));
  if (status == cudaSuccess) return data;
  cudaGetLastError();  // it is said here, and the next call is not to blame
  if (status != cudaErrorMemoryAllocation) check_cuda(status, "giving memory");
  throw Error(too_little_gpu_memory(size, free_gpu_memory()));
}
void* allocate_pinned(Bytes size) {
  open_gpu();
  void* data = nullptr;
  if (cudaMallocHost(&data, at_least_one(size)) == cudaSuccess) return data;
  cudaGetLastError();
  throw MachineError(join_parts("this wants ", human(size), " (", size.count,
                                " bytes) of pinned host memory, which the machine does not give: "
                                "take a smaller --batch, or a stack without offload"));
}
void release_gpu(void* data) { cudaFree(data); }
void release_pinned(void* data) { cudaFreeHost(data); }

}  // namespace adjoint
