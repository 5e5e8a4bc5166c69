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
  EXPECT_EQ(checksum_of(tensors_), "words:96e944028ee7b249");
  std::swap(tensors_[0], tensors_[1]);
  EXPECT_EQ(checksum_of(tensors_), "words:96e944028ee7b249");
}

// Whoever has which bytes: pieces begin and end inside of words.
TEST_F(Checksum, IsTheSumOfItsPieces) {
  for (int64_t cut = 0; cut <= 39; ++cut) {
    const uint64_t sum = sum_of_words("weight", 0, weight_.data(), {cut}) +
                         sum_of_words("weight", cut, weight_.data() + cut, {39 - cut});
    EXPECT_EQ(sum, sum_of_words("weight", 0, weight_.data(), {39})) << cut;
  }
  uint64_t sum = 0;
  for (int part = 0; part < 7; ++part) sum += sum_of_share(tensors_, part, 7);
  EXPECT_EQ(checksum_text(sum), checksum_of(tensors_));
}

TEST_F(Checksum, OfEveryKindIsRead) {
  for (const char* sum : {"words:96e944028ee7b249", "xxh3:236f0f8995c0a77a", "c00c193ed5b5ed72"}) {
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
