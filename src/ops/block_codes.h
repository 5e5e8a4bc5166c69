// Numbers as codes of 8 bits with a scale per block of neighbours in a row (Dettmers et al., "8-bit
// Optimizers via Block-wise Quantization", 2021): what block_encode gives and block_decode reads.
//   x = level[code] * scale, scale = the largest |x| of the block
// Levels are dynamic: each decade below 1 has half as many as the one above it, so that what is far
// below the block's largest number keeps a digit. The largest is 1 and 0 is code 0, so that
// encoding what was decoded gives the same codes and scales: a step that is not taken changes no
// bit. What is not 0 is never encoded as 0: a second moment of 0 would divide by eps alone.
//   dyn8   signed codes -127..127, seven decades
//   dyn8u  codes 0..255 of numbers that are never negative, eight decades
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "scheme/type.h"

namespace adjoint {

constexpr int64_t kCodeBlock = 256;

// By the code without its sign: levels in ascending order, and what lies half-way to the next one.
struct DynamicLevels {
  int count = 0;  // 128 or 256
  std::array<float, 256> level = {}, border = {};
  // The level of the least float of each 64th of an octave, from 2^-27 to 1: there are at most two
  // borders between it and the next one.
  static constexpr int32_t kFirst = 100 << 6, kLast = 127 << 6;
  std::array<uint8_t, kLast - kFirst + 1> start = {};
};
const DynamicLevels& dynamic_levels(bool is_signed);

// Where blocks lie: each row is blocks of kCodeBlock, and what is left at its end.
struct CodeBlocks {
  explicit CodeBlocks(const Type& type)
      : row(type.dim(-1)),
        per_row((row + kCodeBlock - 1) / kCodeBlock),
        count(type.num_elements() / row * per_row) {}
  int64_t row, per_row, count;

  int64_t first(int64_t block) const {
    return block / per_row * row + block % per_row * kCodeBlock;
  }
  int64_t size(int64_t block) const {
    const int64_t left = row - block % per_row * kCodeBlock;
    return left < kCodeBlock ? left : kCodeBlock;
  }
};
Type block_codes_type(const Type& type, bool is_signed);
Type block_scales_type(const Type& type);

// The level that is nearest to y in 0..1, but never 0.
inline int nearest_level(const DynamicLevels& levels, float y) {
  const int32_t key =
      std::clamp(std::bit_cast<int32_t>(y) >> 17, DynamicLevels::kFirst, DynamicLevels::kLast);
  int code = levels.start[key - DynamicLevels::kFirst];
  code += y > levels.border[code];
  return code + (y > levels.border[code]);
}

inline int nearest_level(const DynamicLevels& levels, double y) {
  int low = 1, high = levels.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (y > levels.border[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The code of x in a block with this scale.
template <class T>
int block_code(const DynamicLevels& levels, T x, T scale) {
  if (x == 0 || !(scale > 0)) return 0;
  const int code = nearest_level(levels, (x < 0 ? -x : x) / scale);
  return x < 0 && levels.count == 128 ? -code : code;
}

}  // namespace adjoint
