// Bytes on a device, owned. Only `run` makes them.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>

#include "base/bytes.h"

namespace adjoint {

constexpr Bytes kAlignment{64};  // a cache line, and the widest vector

// What Linux could give without swapping; nothing where it does not say.
std::optional<Bytes> available_memory();

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Bytes size);  // MachineError when there is not that much memory

  std::byte* data() const { return data_.get(); }
  Bytes size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  Bytes size_{0};
};

}  // namespace adjoint
