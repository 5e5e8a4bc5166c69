#include "device/buffer.h"

#include <cstdlib>

#include "base/error.h"

namespace adjoint {

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

Buffer::Buffer(Bytes size) : size_(size) {
  const Bytes rounded = round_up(size, kAlignment);
  data_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment.count, std::max<int64_t>(rounded.count, kAlignment.count))));
  if (!data_) {
    throw MachineError("the machine has no " + human(size) + " (" + std::to_string(size.count) +
                       " bytes) of memory to give");
  }
}

}  // namespace adjoint
