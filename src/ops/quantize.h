// Matrices as codes with scales: what `dequantize` reads and how a matrix is turned into it.
//   int8: w = code * scale, codes -127..127, scale = largest |w| / 127 (symmetric)
//   int4: w = code * scale, codes -7..7, scale = largest |w| / 7, two codes a byte, each plus 8
//   nf4:  w = level[code] * scale, 16 levels at quantiles of a normal distribution, scale = largest
//         |w| (Dettmers et al., "QLoRA", 2023); two codes a byte, the even column in the low bits
// One scale serves the whole tensor, a channel (a row) or a group of neighbours within a row.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "scheme/type.h"

namespace adjoint {

struct CodeFormat {
  enum class Kind : uint8_t { kInt8, kInt4, kNF4 } kind = Kind::kInt8;
  enum class Per : uint8_t { kTensor, kChannel, kGroup } per = Per::kTensor;
  int64_t group = 0;  // elements that share a scale, where `per` is kGroup
  bool operator==(const CodeFormat&) const = default;
};
std::string_view name(CodeFormat::Kind kind);  // "nf4", as dequantize's `format`
std::optional<CodeFormat::Kind> code_kind(std::string_view name);
std::string to_string(const CodeFormat& format);               // "int8/tensor", "nf4/64"
std::optional<CodeFormat> code_format(std::string_view text);  // of an object's precision

constexpr int codes_per_byte(CodeFormat::Kind kind) {
  return kind == CodeFormat::Kind::kInt8 ? 1 : 2;
}

// The levels of nf4 (appendix E of the paper).
inline constexpr std::array<float, 16> kNormalLevels = {
    -1.0f,          -0.6961928010f, -0.5250730515f, -0.3949174881f,
    -0.2844413817f, -0.1847734302f, -0.0910500363f, 0.0f,
    0.0795802996f,  0.1609302014f,  0.2461123019f,  0.3379152417f,
    0.4407098293f,  0.5626170039f,  0.7229568362f,  1.0f};

inline constexpr std::array<float, 16> kWholeLevels = {-8, -7, -6, -5, -4, -3, -2, -1,
                                                       0,  1,  2,  3,  4,  5,  6,  7};
// What the 16 codes of a format of 4 bits stand for, before the scale.
constexpr const std::array<float, 16>& levels(CodeFormat::Kind kind) {
  return kind == CodeFormat::Kind::kNF4 ? kNormalLevels : kWholeLevels;
}
// The scale of a group is its largest |w| divided by this.
constexpr float largest_level(CodeFormat::Kind kind) {
  return kind == CodeFormat::Kind::kNF4 ? 1 : kind == CodeFormat::Kind::kInt4 ? 7 : 127;
}

// What the codes and scales of a matrix are. The row must split evenly: see `fits`.
Type codes_type(const Type& matrix, const CodeFormat& format);
Type scales_type(const Type& matrix, const CodeFormat& format);
// Whether groups and bytes divide a row of this many elements.
bool fits(int64_t row, const CodeFormat& format);
// The group nearest to the wanted one that divides the row (in whole bytes).
int64_t nearest_group(int64_t row, const CodeFormat& format);

// How codes and scales of a call of dequantize fit together; Error.
struct CodeShape {
  CodeFormat::Kind kind = CodeFormat::Kind::kInt8;
  bool packed = false;                    // two codes a byte
  int64_t rows = 1, row = 1, groups = 1;  // of elements; groups of a row
  bool one_scale = false;

  int64_t scale_at(int64_t r, int64_t group) const { return one_scale ? 0 : r * groups + group; }
};

struct OpCall;
CodeShape code_shape(const OpCall& call);

}  // namespace adjoint
