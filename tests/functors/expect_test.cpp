// Lines `expect`: a use that is otherwise is told of, and rewritten all the same.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "models/elaborate.h"
#include "models/library.h"
#include "scheme/document.h"

namespace adjoint {
namespace {

Scheme forward() {
  const Document document = parse_document(
      "axes context=8 hidden=16 vocab=40 layers=3\n"
      "block x[batch, seq, hidden]:\n  h = linear(x, 2*hidden)\n  x = x + linear(gelu(h), hidden)\n"
      "model tokens[batch, seq], targets[batch, seq]:\n  x = embed(tokens, vocab, hidden)\n"
      "  x = block^layers(x)\n  loss = cross_entropy(linear(x, vocab), targets)\n",
      "small.scheme");
  return elaborate(document, "small.scheme", {.settings = {{"batch", 2}}});
}

std::vector<std::string> doubts_of(const std::string& stack) {
  std::vector<std::string> all;
  for (const Applied& applied : build_step(forward(), parse_stack(stack), {}).applied) {
    all.insert(all.end(), applied.doubts.begin(), applied.doubts.end());
  }
  return all;
}

TEST(Expect, TellsOfAllUsesInOneSentence) {
  // 10*(32 + 16) <= 32*16 < 11*(32 + 16)
  EXPECT_EQ(doubts_of("lora(rank=10)"), std::vector<std::string>{});
  const std::vector<std::string> doubts = doubts_of("lora(rank=11)");
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_TRUE(has(doubts[0], "lora: 'block[0]."));
  EXPECT_TRUE(has(doubts[0],
                  " and 5 others: rank=11 of a map of 32 x 16: the thin matrices are larger than "
                  "the matrix"))
      << doubts[0];
}

TEST(Expect, IsReadWithTheNamesOfItsRule) {
  const auto refused = [](const std::string& line) {
    return error_text([&] {
      parse_functor_text(
          "functor f(k = 2):\n  law approximating\n"
          "  morphism y = linear(x, W) where parameter(W)\n    " +
              line + "\n    -> y * 2\n",
          "f.functor");
    });
  };
  EXPECT_EQ(refused("expect k <= width(x) and k <= width(W), else \"{k} of {width(y)}\""), "");
  EXPECT_TRUE(has(refused("expect k <= width(z), else \"no\""),
                  "f.functor:4:17: width wants the result or an operand of this rule (y, x, W)"));
  EXPECT_TRUE(has(refused("expect k <= width(x), else \"{width(z)}\""), "found 'width(z)'"));
  EXPECT_TRUE(has(refused("expect k, else \"no\""), "wanted a comparison"));
  EXPECT_TRUE(has(refused("expect k < 3"), "wanted ','"));
}

}  // namespace
}  // namespace adjoint
