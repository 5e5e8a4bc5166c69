// Owned bytes on a device. Only the room `run` makes buffers.
#pragma once
#include <cstddef>
#include <memory>

#include "base/bytes.h"

namespace adjoint {

constexpr Bytes kAlignment{64};  // a cache line, and the widest vector

// Host memory, GPU memory, or pinned host memory, which the GPU can copy directly.
enum class Memory : uint8_t { kHost, kGpu, kPinned };

struct FreeBuffer {
  Memory memory = Memory::kHost;
  void operator()(std::byte* data) const;
};

class Buffer {
 public:
  Buffer() = default;
  // Throws if there is not enough memory: a MachineError, or an Error on a GPU.
  explicit Buffer(Bytes size, Memory memory = Memory::kHost);

  std::byte* data() const { return data_.get(); }
  Bytes size() const { return size_; }

 private:
  std::unique_ptr<std::byte, FreeBuffer> data_;
  Bytes size_{0};
};

}  // namespace adjoint
