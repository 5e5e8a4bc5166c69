#include "train/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/hash.h"
#include "base/philox.h"
#include "device/parallel.h"

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

// Before ranks wrote saves together.
std::string second_checksum_of(std::span<const SafetensorView> tensors) {
  uint64_t sum = 0;
  for (const SafetensorView& t : tensors) {
    sum += hash_of(t.data, static_cast<size_t>(t.size.count), hash_of(t.name));
  }
  return hash_text(sum);
}

constexpr std::string_view kWords = "words:";
constexpr int64_t kWord = 4;  // bytes

// A factor of 64 random bits for each word of 32: two different tensors have equal sums with
// probability 2^-32 at most, because no difference of a word has more than 31 zeros below it. Odd,
// so that a change of one word is never missed.
ADJOINT_INLINE uint64_t factor(uint64_t seed, int64_t word) {
  uint64_t z = seed + static_cast<uint64_t>(word) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93;
  return (z ^ (z >> 29)) | 1;
}

ADJOINT_SIMD uint64_t sum_of_whole_words(uint64_t seed, int64_t first, const unsigned char* bytes,
                                         int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + i * kWord, kWord);
    sum += word * factor(seed, first + i);
  }
  return sum;
}

}  // namespace

uint64_t sum_of_words(std::string_view name, int64_t begin, const void* data, Bytes size) {
  const uint64_t seed = hash_of(name);
  const auto* bytes = static_cast<const unsigned char*>(data);
  const int64_t end = begin + size.count;
  uint64_t sum = 0;
  // The sum is linear, so bytes of a word that others have count as zeros here.
  const auto add_bytes = [&](int64_t from, int64_t to) {
    for (int64_t at = from; at < to; ++at) {
      const uint64_t shifted = uint64_t{bytes[at - begin]} << (8 * (at % kWord));
      sum += shifted * factor(seed, at / kWord);
    }
  };
  const int64_t first = std::min((begin + kWord - 1) / kWord * kWord, end);
  const int64_t last = std::max(end / kWord * kWord, first);
  add_bytes(begin, first);
  sum += sum_of_whole_words(seed, first / kWord, bytes + (first - begin), (last - first) / kWord);
  add_bytes(last, end);
  return sum;
}

std::string checksum_text(uint64_t sum) { return fmt::format("{}{:016x}", kWords, sum); }

std::string checksum_of(std::span<const SafetensorView> tensors) {
  uint64_t sum = 0;
  for (const SafetensorView& t : tensors) sum += sum_of_words(t.name, 0, t.data, t.size);
  return checksum_text(sum);
}

bool is_sum_of_words(std::string_view checksum) { return checksum.starts_with(kWords); }

uint64_t sum_of_share(std::span<const SafetensorView> tensors, int part, int parts) {
  uint64_t sum = 0;
  std::mutex mutex;
  for (const SafetensorView& t : tensors) {
    const int64_t begin = t.size.count * part / parts, end = t.size.count * (part + 1) / parts;
    parallel_for(end - begin, 1 << 20, [&](int64_t from, int64_t to, int) {
      const uint64_t own = sum_of_words(
          t.name, begin + from, static_cast<const std::byte*>(t.data) + begin + from, {to - from});
      const std::lock_guard lock(mutex);
      sum += own;
    });
  }
  return sum;
}

bool is_checksum_of(std::string_view checksum, std::span<const SafetensorView> tensors) {
  if (is_sum_of_words(checksum)) return checksum == checksum_text(sum_of_share(tensors, 0, 1));
  const bool has_kind = checksum.find(':') != std::string_view::npos;
  return checksum == (has_kind ? second_checksum_of(tensors) : first_checksum_of(tensors));
}

}  // namespace adjoint
