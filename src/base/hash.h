// Hashes of data, by xxHash (XXH3, whose values are the same on every machine and in every version
// from 0.8 on). Keys of random numbers are hashed in philox.h, where bits must never change.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adjoint {

uint64_t hash_of(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_of(std::string_view text, uint64_t seed = 0) {
  return hash_of(text.data(), text.size(), seed);
}

// A hash as files hold it, "xxh3:0123456789abcdef": the name tells it from other kinds.
std::string hash_text(uint64_t hash);

}  // namespace adjoint
