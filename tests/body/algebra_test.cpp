// Bodies as people write them: brackets where they are needed, and nowhere else.
#include "body/algebra.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

template <class Write>
std::string written(Write write, const std::vector<std::string>& names = {}) {
  Body body;
  const Expr result = write(body);
  body.outputs.push_back({.node = result.node});
  return algebra(body, names);
}

TEST(Algebra, HasBracketsWhereTheyAreNeeded) {
  EXPECT_EQ(written([](Body& b) { return (input(b, 0) + input(b, 1)) * input(b, 2); }),
            "(a + b)*c");
  EXPECT_EQ(written([](Body& b) { return input(b, 0) + input(b, 1) * input(b, 2); }), "a + b*c");
  EXPECT_EQ(written([](Body& b) { return input(b, 0) - (input(b, 1) - input(b, 2)); }),
            "a - (b - c)");
  EXPECT_EQ(written([](Body& b) { return (input(b, 0) - input(b, 1)) - input(b, 2); }),
            "a - b - c");
  EXPECT_EQ(written([](Body& b) { return input(b, 0) / (input(b, 1) * input(b, 2)); }), "a/(b*c)");
  EXPECT_EQ(written([](Body& b) { return input(b, 0) * (input(b, 1) / input(b, 2)); }), "a*b/c");
  EXPECT_EQ(written([](Body& b) { return -(input(b, 0) + input(b, 1)); }), "-(a + b)");
  EXPECT_EQ(written([](Body& b) { return input(b, 0) * constant(b, -2); }), "a*(-2)");
}

TEST(Algebra, CallsOperandsByTheirNamesAndNamesWhatIsReadTwice) {
  const auto norm = [](Body& b) {
    const Expr centered = input(b, 0) - row_sum(input(b, 0)) / 4;
    return centered * rsqrt(row_sum(centered * centered) / 4 + 1e-5) * input(b, 1);
  };
  EXPECT_EQ(written(norm, {"x", "weight"}),
            "t1*rsqrt(sum(t1*t1)/4 + 1e-05)*weight where t1 = x - sum(x)/4");
}

}  // namespace
}  // namespace adjoint
