// Saves hold these checksums, those of earlier versions too, so their values are pinned.
#include "train/checksum.h"

#include <gtest/gtest.h>

#include <numeric>

namespace adjoint {
namespace {

class Checksum : public testing::Test {
 protected:
  void SetUp() override { std::iota(weight_.begin(), weight_.end(), uint8_t{0}); }

  std::array<uint8_t, 39> weight_ = {};  // no multiple of a word
  std::array<uint8_t, 3> bias_ = {7, 8, 9};
  std::vector<SafetensorView> tensors_ = {
      {.name = "weight", .dtype = "U8", .shape = {39}, .data = weight_.data(), .size = {39}},
      {.name = "bias", .dtype = "U8", .shape = {3}, .data = bias_.data(), .size = {3}}};
};

TEST_F(Checksum, HasItsPinnedValueInAnyOrder) {
  EXPECT_EQ(checksum_of(tensors_), "xxh3:236f0f8995c0a77a");
  std::swap(tensors_[0], tensors_[1]);
  EXPECT_EQ(checksum_of(tensors_), "xxh3:236f0f8995c0a77a");
}

TEST_F(Checksum, OfBothKindsIsRead) {
  for (const char* sum : {"xxh3:236f0f8995c0a77a", "c00c193ed5b5ed72"}) {
    EXPECT_TRUE(is_checksum_of(sum, tensors_)) << sum;
    weight_[35] ^= 1;
    EXPECT_FALSE(is_checksum_of(sum, tensors_)) << sum << ": another number";
    weight_[35] ^= 1;
    std::swap(tensors_[0].name, tensors_[1].name);
    EXPECT_FALSE(is_checksum_of(sum, tensors_)) << sum << ": other names";
    std::swap(tensors_[0].name, tensors_[1].name);
  }
  for (const char* sum : {"", "xxh3:", "xxh3:c00c193ed5b5ed72", "236f0f8995c0a77a", "md5:00"}) {
    EXPECT_FALSE(is_checksum_of(sum, tensors_)) << sum;
  }
}

}  // namespace
}  // namespace adjoint
