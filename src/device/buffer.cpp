#include "device/buffer.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.h"

namespace adjoint {

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

std::optional<Bytes> available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == "MemAvailable:" && in >> kib) return Bytes{kib * 1024};
  }
  return std::nullopt;
}

Buffer::Buffer(Bytes size) : size_(size) {
  // Asking for too much often succeeds, and ends in the kernel killing whoever touches it.
  if (const auto available = available_memory(); available && size > *available) {
    throw MachineError("this needs " + human(size) + " (" + std::to_string(size.count) +
                       " bytes) of memory, the machine has " + human(*available) + " available");
  }
  const Bytes rounded = round_up(size, kAlignment);
  data_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment.count, std::max<int64_t>(rounded.count, kAlignment.count))));
  if (!data_) {
    throw MachineError("the machine has no " + human(size) + " (" + std::to_string(size.count) +
                       " bytes) of memory to give");
  }
}

}  // namespace adjoint
