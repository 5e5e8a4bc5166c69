// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): random bits
// as a pure function of a key and a counter. The same bits come out under any split of the work,
// any order, any recomputation and after a resume, because nothing is drawn from a state. Written
// by hand and not taken from Random123, because generated kernels repeat it line by line.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace adjoint {

using PhiloxBlock = std::array<uint32_t, 4>;

inline __attribute__((always_inline)) PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// One stream of random numbers: a seed, a step, and the source path of what it is drawn for.
// Element i of the stream is word i % 4 of block i / 4.
struct RandomStream {
  uint64_t key = 0;
  uint64_t step = 0;

  PhiloxBlock block(uint64_t index) const {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                   static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                  key);
  }
  uint32_t bits(uint64_t element) const { return block(element / 4)[element % 4]; }
  // Uniform in [0, 1): 24 bits, so that float and double readings agree.
  double uniform(uint64_t element) const { return (bits(element) >> 8) * 0x1p-24; }
  // Standard normals by Box and Muller, two from one block: elements 2 * pair and the next.
  std::array<double, 2> normals(uint64_t pair) const {
    const PhiloxBlock words = block(pair);
    const double radius = std::sqrt(-2 * std::log((words[0] + 1.0) * 0x1p-32));
    const double angle = 6.283185307179586 * (words[1] * 0x1p-32);
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  double normal(uint64_t element) const { return normals(element / 2)[element % 2]; }
};

// FNV-1a with a final mix: the same on every machine, unlike std::hash. By hand and not xxHash,
// because the random numbers of every run so far depend on it.
constexpr uint64_t stable_hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccd;
  return h ^ (h >> 33);
}

// The key of everything random about `path` under `seed`.
constexpr uint64_t random_key(uint64_t seed, std::string_view path) {
  uint64_t h = stable_hash(path) ^ (seed * 0x9E3779B97F4A7C15);
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9;
  return h ^ (h >> 32);
}

}  // namespace adjoint
