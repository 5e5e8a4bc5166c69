#include "base/bytes.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

constexpr int64_t kKiB = 1024, kGiB = kKiB * kKiB * kKiB;

TEST(Bytes, Human) {
  EXPECT_EQ(human({0}), "0 B");
  EXPECT_EQ(human({412}), "412 B");
  EXPECT_EQ(human({1023}), "1023 B");
  EXPECT_EQ(human({1024}), "1.00 KiB");
  EXPECT_EQ(human({3 * kKiB + kKiB / 4}), "3.25 KiB");
  EXPECT_EQ(human({12 * kKiB * kKiB + kKiB * kKiB / 2}), "12.5 MiB");
  EXPECT_EQ(human({139 * kGiB}), "139 GiB");
  EXPECT_EQ(human({2 * kGiB * kKiB}), "2.00 TiB");
}

TEST(Bytes, WithCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
}

TEST(Bytes, RoundUp) {
  EXPECT_EQ(round_up({0}, {64}), Bytes{0});
  EXPECT_EQ(round_up({1}, {64}), Bytes{64});
  EXPECT_EQ(round_up({64}, {64}), Bytes{64});
  EXPECT_EQ(round_up({65}, {64}), Bytes{128});
}

TEST(Bytes, Arithmetic) {
  Bytes bytes = 3 * Bytes{4} + Bytes{1} - Bytes{3};
  EXPECT_EQ(bytes, Bytes{10});
  bytes += {5};
  bytes -= {1};
  EXPECT_EQ(bytes, Bytes{14});
  EXPECT_LT(Bytes{1}, Bytes{2});
}

}  // namespace
}  // namespace adjoint
