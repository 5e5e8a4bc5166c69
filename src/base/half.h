// The two 16-bit floats as bits, rounded to nearest even, and the compilers' own types for them.
// The conversions are written by hand so that every compiler and processor gives the same bits.
#pragma once
#include <bit>
#include <cstdint>

namespace adjoint {

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffff) > 0x7f800000;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
    const uint32_t magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits = sign | 0x7e00;  // not a number
    } else if (magnitude >= 0x477ff000) {
      bits = sign | 0x7c00;  // 65520 and above round to infinity
    } else if (magnitude < 0x38800000) {
      // Subnormal: adding 0.5 lines the last bits of the result up with those of the sum.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
    } else {
      const uint32_t rounded = magnitude + 0xc8000fff + ((magnitude >> 13) & 1);
      bits = static_cast<uint16_t>(sign | (rounded >> 13));
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude << 13));
    if (magnitude < 0x400) {
      const float small = static_cast<float>(magnitude) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  }
};

}  // namespace adjoint
