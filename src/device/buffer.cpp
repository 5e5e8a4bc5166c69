#include "device/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "device/gpu.h"
#include "device/limits.h"

namespace adjoint {

namespace {
constexpr Bytes kLargePage{2 << 20};
}

void FreeBuffer::operator()(std::byte* data) const {
  switch (memory) {
    case Memory::kHost:
      return std::free(data);
    case Memory::kGpu:
      return release_gpu(data);
    case Memory::kPinned:
      return release_pinned(data);
  }
}

Buffer::Buffer(Bytes size, Memory memory) : size_(size) {
  // Asking for too much often succeeds, and ends in the kernel killing whoever touches it.
  if (memory != Memory::kGpu) {
    if (const auto lack = lack_of_memory(size, "this")) throw MachineError(*lack);
  }
  if (memory != Memory::kHost) {
    void* data = memory == Memory::kGpu ? allocate_gpu(size) : allocate_pinned(size);
    data_ = {static_cast<std::byte*>(data), FreeBuffer{memory}};
    return;
  }
  const Bytes alignment = size >= kLargePage ? kLargePage : kAlignment;
  const Bytes rounded = round_up(std::max(size, alignment), alignment);
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment.count, rounded.count)));
  if (!data_) {
    throw MachineError("the machine has no " + human(size) + " (" + std::to_string(size.count) +
                       " bytes) of memory to give");
  }
#ifdef MADV_HUGEPAGE
  // A wish, not a need: products that walk columns otherwise spend their time looking up pages.
  if (alignment == kLargePage) madvise(data_.get(), rounded.count, MADV_HUGEPAGE);
#endif
}

}  // namespace adjoint
