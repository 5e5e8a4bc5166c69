// The parts of CUDA that rooms other than `kernels` need: the GPU, its memory, streams, and steps
// that are recorded once and launched as a graph. Without CUDA in the binary, or without a GPU,
// every call throws an Error that says what is missing; a failure of the GPU is a MachineError.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

struct Gpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  Bytes memory = {0};
};
bool has_cuda();        // this binary was built with CUDA
bool has_gpu();         // and this machine has a GPU that it can use
const Gpu& open_gpu();  // the first one; Error
Bytes free_gpu_memory();

class GpuClock;

// A stream of work on the GPU, in order. Errors of what was enqueued surface at the next call.
class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void* handle() const { return stream_; }  // a cudaStream_t
  void copy(void* to, const void* from, Bytes size);
  void fill(void* to, std::byte with, Bytes size);
  // Fills memory, except for a few bytes at the end, with random numbers below 2 in every floating
  // dtype: a GPU multiplies zeros faster than the numbers of a step.
  void fill_with_noise(void* to, Bytes size);
  void synchronize();
  // Work that is enqueued from now on begins when the other stream has passed its mark.
  void wait_for(const GpuClock& clock, size_t mark);

  // Work that is enqueued between begin and end is recorded and not run. That holds for this stream
  // and for streams that wait for it meanwhile; this one must wait for them before the end.
  void begin_recording();
  class Recording;
  std::shared_ptr<Recording> end_recording();
  void drop_recording() noexcept;  // instead of its end
  void launch(const Recording& recording);

 private:
  void* stream_ = nullptr;
};

// Records what the calls enqueue. If one of them throws, the recording is dropped, and the stream
// runs work as before.
template <class Stream, class Calls>
auto recorded(Stream& stream, const Calls& calls) {
  stream.begin_recording();
  try {
    calls();
  } catch (...) {
    stream.drop_recording();
    throw;
  }
  return stream.end_recording();
}

// Points in time on streams.
class GpuClock {
 public:
  explicit GpuClock(size_t marks);
  ~GpuClock();
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;

  void mark(size_t i, GpuStream& stream);
  void wait(size_t i) const;  // until the stream has passed the mark, if it was made
  double seconds(size_t from, size_t to) const;  // when the stream has passed both

 private:
  friend class GpuStream;
  std::vector<void*> events_;
};

// GPU memory, or pinned host memory. If there is not enough: an Error with the wanted and free
// bytes for a GPU, a MachineError for the host.
void* allocate_gpu(Bytes size);
void* allocate_pinned(Bytes size);
void release_gpu(void* data);
void release_pinned(void* data);

}  // namespace adjoint
