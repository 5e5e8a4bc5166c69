// A binary without CUDA: one sentence for everything.
#include "base/error.h"
#include "device/gpu.h"

namespace adjoint {

namespace {
[[noreturn]] void refuse() {
  throw Error(
      "this adjoint was built without CUDA: build it where nvcc is on the PATH, or say --device "
      "cpu");
}
}  // namespace

class GpuStream::Recording {};

bool has_cuda() { return false; }
bool has_gpu() { return false; }
const Gpu& open_gpu() { refuse(); }
Bytes free_gpu_memory() { refuse(); }
GpuStream::GpuStream() { refuse(); }
GpuStream::~GpuStream() = default;
void GpuStream::copy(void*, const void*, Bytes) { refuse(); }
void GpuStream::fill(void*, std::byte, Bytes) { refuse(); }
void GpuStream::fill_with_noise(void*, Bytes) { refuse(); }
void GpuStream::synchronize() { refuse(); }
void GpuStream::wait_for(const GpuClock&, size_t) { refuse(); }
void GpuStream::begin_recording() { refuse(); }
std::shared_ptr<GpuStream::Recording> GpuStream::end_recording() { refuse(); }
void GpuStream::drop_recording() noexcept {}
void GpuStream::launch(const Recording&) { refuse(); }
GpuClock::GpuClock(size_t) { refuse(); }
GpuClock::~GpuClock() = default;
void GpuClock::mark(size_t, GpuStream&) { refuse(); }
void GpuClock::wait(size_t) const { refuse(); }
double GpuClock::seconds(size_t, size_t) const { refuse(); }
void* allocate_gpu(Bytes) { refuse(); }
void* allocate_pinned(Bytes) { refuse(); }
void release_gpu(void*) {}
void release_pinned(void*) {}

}  // namespace adjoint
