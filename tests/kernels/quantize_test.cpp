// Codes with scales: every element within half a step of what it was, and codes that survive a
// round trip.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include "kernels/harness.h"

namespace adjoint {
namespace {

struct Codes {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  bool operator==(const Codes&) const = default;
};

Codes encode(const std::vector<float>& matrix, const Type& type, const CodeFormat& format) {
  Codes c{std::vector<uint8_t>(codes_type(type, format).bytes().count),
          std::vector<float>(scales_type(type, format).num_elements())};
  quantize(matrix.data(), type, format, c.codes.data(), c.scales.data());
  return c;
}

// Through the op itself.
std::vector<float> decode(const Codes& c, const Type& type, const CodeFormat& format) {
  Scheme s;
  Builder b(s);
  const Value codes = s.add_input({.type = codes_type(type, format), .source = {"codes"}});
  const Value scales = s.add_input({.type = scales_type(type, format), .source = {"scales"}});
  s.outputs = {b.emit("dequantize", {codes, scales}, {{"format", std::string(name(format.kind))}})};
  EXPECT_TRUE(same_shape(s[s.outputs[0]].type, type));
  Numbers bytes;
  for (const uint8_t byte : c.codes) {
    const bool is_signed = format.kind == CodeFormat::Kind::kInt8;
    bytes.push_back(is_signed ? static_cast<int8_t>(byte) : byte);
  }
  const auto out = run_scheme(s, {bytes, Numbers(c.scales.begin(), c.scales.end())}, false);
  return {out[0].begin(), out[0].end()};
}

const std::vector<std::string> kFormats = {"int8/tensor", "int8/channel", "int8/16",
                                           "int4/tensor", "int4/channel", "int4/16",
                                           "nf4/tensor",  "nf4/channel",  "nf4/16"};

std::vector<float> some_matrix(const Type& type) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> matrix(type.num_elements());
  for (float& x : matrix) x = normal(random);
  // A group of zeros, whose scale is 0.
  for (size_t i = 32; i < 64; ++i) matrix.at(i) = 0;
  return matrix;
}

// The widest gap of nf4's levels lies at its lower end.
double half_step(const CodeFormat& format, float scale) {
  if (format.kind != CodeFormat::Kind::kNF4) return 0.5 * scale;
  return 0.5 * (1 - 0.6961928) * scale;
}

TEST(Quantize, IsWithinHalfAStep) {
  const Type type{Dtype::kF32, {{"o", 6}, {"i", 32}}};
  const std::vector<float> matrix = some_matrix(type);
  for (const std::string& text : kFormats) {
    const CodeFormat format = code_format(text).value();
    EXPECT_EQ(to_string(format), text);
    const Codes c = encode(matrix, type, format);
    const std::vector<float> back = decode(c, type, format);
    const size_t shared = matrix.size() / c.scales.size();
    double worst = 0;
    for (size_t i = 0; i < matrix.size(); ++i) {
      const double bound = half_step(format, c.scales[i / shared]);
      EXPECT_LE(std::abs(back[i] - matrix[i]), bound * (1 + 1e-5)) << text << " element " << i;
      if (bound > 0) worst = std::max(worst, std::abs(back[i] - matrix[i]) / bound);
    }
    EXPECT_GT(worst, 0.5) << text << ": some element lies between two codes";
    EXPECT_EQ(encode(back, type, format).codes, c.codes) << text << ": a round trip";
  }
}

// Between two neighbouring levels of nf4 the nearer one is taken.
TEST(Quantize, TakesTheNearestLevel) {
  const Type type{Dtype::kF32, {{"o", 1}, {"i", 2}}};
  const CodeFormat format = code_format("nf4/tensor").value();
  for (size_t k = 0; k + 1 < kNormalLevels.size(); ++k) {
    const float low = kNormalLevels[k], high = kNormalLevels[k + 1];
    for (const float at : {0.45f, 0.55f}) {
      const float x = low + at * (high - low);
      const Codes c = encode({x, -1.0f}, type, format);
      EXPECT_EQ(c.codes[0] & 15, static_cast<int>(at < 0.5f ? k : k + 1)) << x;
      EXPECT_EQ(c.codes[0] >> 4, 0) << "-1 is the lowest level";
    }
  }
}

TEST(Quantize, TakesItsBits) {
  const Type type{Dtype::kF32, {{"o", 128}, {"i", 256}}};
  const auto bits = [&](const char* text) {
    const CodeFormat format = code_format(text).value();
    const Bytes bytes = codes_type(type, format).bytes() + scales_type(type, format).bytes();
    return 8.0 * static_cast<double>(bytes.count) / static_cast<double>(type.num_elements());
  };
  EXPECT_EQ(bits("nf4/64"), 4.5);
  EXPECT_EQ(bits("int4/128"), 4.25);
  EXPECT_EQ(bits("int8/64"), 8.5);
  EXPECT_EQ(bits("int8/channel"), 8 + 32.0 / 256);
}

TEST(Quantize, KnowsItsFormats) {
  for (const char* text : {"bf16", "int8", "nf4/", "nf4/0", "int8/-4", "int8/64x", "int3/64", ""}) {
    EXPECT_FALSE(code_format(text)) << text;
  }
  const CodeFormat nf4 = code_format("nf4/64").value();
  EXPECT_TRUE(fits(128, nf4));
  EXPECT_FALSE(fits(96, nf4));
  EXPECT_EQ(nearest_group(96, nf4), 48);
  EXPECT_EQ(nearest_group(32, nf4), 32);
  EXPECT_EQ(nearest_group(198, nf4), 66);
  EXPECT_FALSE(fits(9, code_format("nf4/3").value())) << "half a byte";
}

}  // namespace
}  // namespace adjoint
