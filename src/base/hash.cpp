#include "base/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // header-only: nothing to link
#include <xxhash.h>

namespace adjoint {

uint64_t hash_of(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

std::string hash_text(uint64_t hash) { return fmt::format("xxh3:{:016x}", hash); }

}  // namespace adjoint
