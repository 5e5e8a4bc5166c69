// The little of CUDA that rooms other than `ops` need: the GPU, its memory, one stream of work, and
// steps that are recorded once and launched whole. Without CUDA in the binary, or without a GPU,
// asking for any of it is an Error that says which; a GPU that fails is a MachineError.
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
bool has_cuda();        // this binary knows CUDA
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
  // With random numbers below 2, whatever floating dtype they are read in, all but the last bytes:
  // a GPU multiplies zeros faster than what a step has.
  void fill_with_noise(void* to, Bytes size);
  void synchronize();
  // What is enqueued from now on begins when another stream has passed its mark.
  void wait_for(const GpuClock& clock, size_t mark);

  // What is enqueued between the two is recorded, not run: here, and on streams that wait for this
  // one meanwhile, for which this one must have waited at the end.
  void begin_recording();
  class Recording;
  std::shared_ptr<Recording> end_recording();
  void drop_recording() noexcept;  // instead of its end
  void launch(const Recording& recording);

 private:
  void* stream_ = nullptr;
};

// What the calls enqueue, recorded. Where one of them throws, no recording stays open: the stream
// then runs what it is given, as before.
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

// Memory of the GPU, or of the host where the GPU reaches it without a detour. Of a GPU that has
// less: an Error with the bytes wanted and free. Of a host: a MachineError.
void* allocate_gpu(Bytes size);
void* allocate_pinned(Bytes size);
void release_gpu(void* data);
void release_pinned(void* data);

}  // namespace adjoint
