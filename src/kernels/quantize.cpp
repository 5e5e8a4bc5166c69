#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

float largest(const float* x, int64_t n) {
  float all = 0;
  for (int64_t i = 0; i < n; ++i) all = std::max(all, std::abs(x[i]));
  return all;
}

int8_t int8_code(float x, float scale) {
  if (scale == 0) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f));
}

uint8_t nf4_code(float x, float scale) {
  const float y = scale == 0 ? 0 : x / scale;
  size_t best = 0;
  for (size_t i = 1; i < kNormalLevels.size(); ++i) {
    if (std::abs(kNormalLevels[i] - y) < std::abs(kNormalLevels[best] - y)) best = i;
  }
  return best;
}

}  // namespace

void quantize(const float* matrix, const Type& type, const CodeFormat& format, void* codes,
              float* scales) {
  const int64_t row = type.dim(-1), count = type.num_elements();
  CHECK(fits(row, format), "groups divide a row");
  const int64_t run = format.per == CodeFormat::Per::kTensor    ? count
                      : format.per == CodeFormat::Per::kChannel ? row
                                                                : format.group;
  const bool packed = format.kind == CodeFormat::Kind::kNF4;
  auto* bytes = static_cast<uint8_t*>(codes);
  parallel_for(count / run, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* x = matrix + i * run;
      scales[i] = packed ? largest(x, run) : largest(x, run) / 127;
      for (int64_t k = 0; k < run; ++k) {
        const int64_t at = i * run + k;
        if (!packed) {
          bytes[at] = static_cast<uint8_t>(int8_code(x[k], scales[i]));
        } else if (k % 2 == 0) {
          const int high = nf4_code(x[k + 1], scales[i]);
          bytes[at / 2] = static_cast<uint8_t>(nf4_code(x[k], scales[i]) | high << 4);
        }
      }
    }
  });
}

}  // namespace adjoint
