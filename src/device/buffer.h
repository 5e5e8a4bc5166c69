// Bytes on a device, owned. Only `run` makes them.
#pragma once
#include <cstddef>
#include <memory>

#include "base/bytes.h"

namespace adjoint {

constexpr Bytes kAlignment{64};  // a cache line, and the widest vector

// The host's, the GPU's, or the host's where the GPU reaches it without a detour.
enum class Memory : uint8_t { kHost, kGpu, kPinned };

struct FreeBuffer {
  Memory memory = Memory::kHost;
  void operator()(std::byte* data) const;
};

class Buffer {
 public:
  Buffer() = default;
  // When there is not that much memory: MachineError, of a GPU Error.
  explicit Buffer(Bytes size, Memory memory = Memory::kHost);

  std::byte* data() const { return data_.get(); }
  Bytes size() const { return size_; }

 private:
  std::unique_ptr<std::byte, FreeBuffer> data_;
  Bytes size_{0};
};

}  // namespace adjoint
