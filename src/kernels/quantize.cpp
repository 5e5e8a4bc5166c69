#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

float largest(const float* x, int64_t n) {
  float all = 0;
  for (int64_t i = 0; i < n; ++i) all = std::max(all, std::abs(x[i]));
  return all;
}

int whole_code(float x, float scale, float most) {
  if (scale == 0) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(x / scale), -most, most));
}

}  // namespace

int code_of(float x, float scale, CodeFormat::Kind kind) {
  if (kind == CodeFormat::Kind::kInt8) return whole_code(x, scale, largest_level(kind));
  if (kind == CodeFormat::Kind::kInt4) return whole_code(x, scale, largest_level(kind)) + 8;
  const float y = scale == 0 ? 0 : x / scale;
  size_t best = 0;
  for (size_t i = 1; i < kNormalLevels.size(); ++i) {
    if (std::abs(kNormalLevels[i] - y) < std::abs(kNormalLevels[best] - y)) best = i;
  }
  return static_cast<int>(best);
}

float level_of(int code, CodeFormat::Kind kind) {
  return codes_per_byte(kind) == 1 ? static_cast<float>(code) : levels(kind)[code];
}

void store_code(void* codes, int64_t at, int code, CodeFormat::Kind kind) {
  auto* const bytes = static_cast<uint8_t*>(codes);
  if (codes_per_byte(kind) == 1) {
    bytes[at] = static_cast<uint8_t>(code);
  } else if (at % 2 == 0) {
    bytes[at / 2] = static_cast<uint8_t>(code);
  } else {
    bytes[at / 2] = static_cast<uint8_t>(bytes[at / 2] | code << 4);
  }
}

int load_code(const void* codes, int64_t at, CodeFormat::Kind kind) {
  const auto* const bytes = static_cast<const uint8_t*>(codes);
  if (codes_per_byte(kind) == 1) return static_cast<int8_t>(bytes[at]);
  return at % 2 ? bytes[at / 2] >> 4 : bytes[at / 2] & 15;
}

void find_centres(const float* numbers, int64_t n, int64_t k, uint8_t* indices, float* centres) {
  CHECK(k >= 1 && k <= 256 && n >= k, "a byte tells k centres of n numbers apart");
  std::vector<float> sorted(numbers, numbers + n);
  std::sort(sorted.begin(), sorted.end());
  for (int64_t j = 0; j < k; ++j) centres[j] = sorted[(2 * j + 1) * n / (2 * k)];
  const auto middle = [&](int64_t j) { return 0.5f * (centres[j] + centres[j + 1]); };
  constexpr int kRounds = 50;  // it settles in fewer, or moves by little
  for (int round = 0; round < kRounds; ++round) {
    bool moved = false;
    int64_t begin = 0;
    std::vector<float> means(centres, centres + k);
    for (int64_t j = 0; j < k; ++j) {
      int64_t end = begin;
      double sum = 0;
      for (; end < n && (j + 1 == k || sorted[end] < middle(j)); ++end) sum += sorted[end];
      if (end > begin) means[j] = static_cast<float>(sum / static_cast<double>(end - begin));
      begin = end;
    }
    for (int64_t j = 0; j < k; ++j) moved = moved || means[j] != centres[j];
    std::copy(means.begin(), means.end(), centres);
    if (!moved) break;
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t low = 0, high = k - 1;  // the first centre whose middle to the next is above it
    while (low < high) {
      const int64_t j = (low + high) / 2;
      if (numbers[i] < middle(j)) {
        high = j;
      } else {
        low = j + 1;
      }
    }
    indices[i] = static_cast<uint8_t>(low);
  }
}

void quantize(const float* matrix, const Type& type, const CodeFormat& format, void* codes,
              float* scales) {
  const int64_t row = type.dim(-1), count = type.num_elements();
  CHECK(fits(row, format), "groups divide a row");
  const int64_t run = format.per == CodeFormat::Per::kTensor    ? count
                      : format.per == CodeFormat::Per::kChannel ? row
                                                                : format.group;
  parallel_for(count / run, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* x = matrix + i * run;
      scales[i] = largest(x, run) / largest_level(format.kind);
      for (int64_t k = 0; k < run; ++k) {
        store_code(codes, i * run + k, code_of(x[k], scales[i], format.kind), format.kind);
      }
    }
  });
}

}  // namespace adjoint
