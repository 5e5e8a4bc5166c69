#include "train/checksum.h"

#include <fmt/format.h>

#include <cstring>

#include "base/hash.h"
#include "base/philox.h"

namespace adjoint {

namespace {

// By hand: saves from before xxHash hold this one, and no library has it.
uint64_t first_hash(const void* data, Bytes size, uint64_t seed) {
  uint64_t lanes[4] = {seed, seed + 1, seed + 2, seed + 3};
  const auto* bytes = static_cast<const unsigned char*>(data);
  const auto mix = [](uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15;
    return h ^ (h >> 29);
  };
  int64_t i = 0;
  for (; i + 32 <= size.count; i += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + i, 32);
    for (int k = 0; k < 4; ++k) lanes[k] = mix(lanes[k], words[k]);
  }
  for (; i < size.count; ++i) lanes[i % 4] = mix(lanes[i % 4], bytes[i]);
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

std::string first_checksum_of(std::span<const SafetensorView> tensors) {
  uint64_t sum = 0;
  for (const SafetensorView& t : tensors) sum += first_hash(t.data, t.size, stable_hash(t.name));
  return fmt::format("{:016x}", sum);
}

}  // namespace

std::string checksum_of(std::span<const SafetensorView> tensors) {
  uint64_t sum = 0;
  for (const SafetensorView& t : tensors) {
    sum += hash_of(t.data, static_cast<size_t>(t.size.count), hash_of(t.name));
  }
  return hash_text(sum);
}

bool is_checksum_of(std::string_view checksum, std::span<const SafetensorView> tensors) {
  const bool has_kind = checksum.find(':') != std::string_view::npos;
  return checksum == (has_kind ? checksum_of(tensors) : first_checksum_of(tensors));
}

}  // namespace adjoint
