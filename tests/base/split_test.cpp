#include "base/split.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

std::vector<std::pair<std::string, size_t>> parts(const std::string& text, char between) {
  std::vector<std::pair<std::string, size_t>> all;
  for (const SplitPart& part : split_outside_brackets(text, between)) {
    all.emplace_back(part.text, part.at);
  }
  return all;
}

using Parts = std::vector<std::pair<std::string, size_t>>;

TEST(Split, BracketsAndQuotesHoldTogether) {
  EXPECT_EQ(parts("a | b(c | d) |e", '|'), (Parts{{"a", 0}, {"b(c | d)", 4}, {"e", 14}}));
  EXPECT_EQ(parts("k=[1, 2], t=\"x,(\", n", ','),
            (Parts{{"k=[1, 2]", 0}, {"t=\"x,(\"", 10}, {"n", 19}}));
  EXPECT_EQ(parts("", '|'), (Parts{{"", 0}}));
  EXPECT_EQ(parts("a||", '|'), (Parts{{"a", 0}, {"", 2}, {"", 3}}));
  EXPECT_EQ(parts("a(|b", '|'), (Parts{{"a(|b", 0}})) << "a bracket that is not closed";
}

TEST(Split, TrimmedHasNoBlanksAround) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
}

}  // namespace
}  // namespace adjoint
