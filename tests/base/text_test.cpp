#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace adjoint {
namespace {

const std::vector<std::string> kNames = {"byte", "char", "word"};

TEST(Text, Join) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
}

TEST(Text, NearestIsTheSmallestEditDistance) {
  EXPECT_EQ(nearest("bite", kNames), "byte");
  EXPECT_EQ(nearest("words", kNames), "word");
  EXPECT_EQ(nearest("chr", kNames), "char");
  EXPECT_EQ(nearest("char", kNames), "char");
}

TEST(Text, NearestRefusesWhatIsFar) {
  EXPECT_EQ(nearest("sentencepiece", kNames), "");
  EXPECT_EQ(nearest("byte", {}), "");
}

TEST(Text, DidYouMean) {
  EXPECT_EQ(did_you_mean("bite", kNames), "; did you mean 'byte'?");
  EXPECT_EQ(did_you_mean("sentencepiece", kNames), "");
}

TEST(Text, ShortestReadsBackAsTheSameDouble) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(3), "3");
  EXPECT_EQ(shortest(-0.5), "-0.5");
  for (const double number : {0.1 + 0.2, 1.0 / 3, 6e-4, 1e-300, 5e-324, 1.7976931348623157e308}) {
    EXPECT_EQ(std::strtod(shortest(number).c_str(), nullptr), number) << shortest(number);
  }
}

}  // namespace
}  // namespace adjoint
