// What the bound of an approximating functor knows of float32, and what a bound that judges nothing
// leads to.
#include <gtest/gtest.h>

#include "functors/functor_text.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

Functor functor(const std::string& rule) {
  return parse_functor("functor own:\n  law approximating\n" + rule, "own.functor");
}

// Few digits of log(y*y + 1) are left where y is small, whoever computes it.
TEST(Judged, WhatFloat32LosesByItselfIsNoMistake) {
  for (const char* rule :
       {"  morphism y = dropout(x)\n    -> log(y*y + 1)\n",
        "  morphism y = gelu(x) where inside chain\n    -> sqrt(1 + y*y) - 1\n"}) {
    const Stack stack = with_planted({functor(rule)});
    const Checkup checkup = checkup_for(find_model("char"), stack, {.seeds = 1});
    const Report report = verify_stack({checkup.subjects[0]}, checkup.stack);
    EXPECT_TRUE(report.ok) << rule << report.reason;
  }
}

// A function that makes noise of every last bit: nobody can tell whether a step computes it.
TEST(Judged, ATensorThatIsAllNoiseJudgesNothing) {
  const auto judged = [](const char* rule) {
    Judge judge(small_gpt2({1}));
    return judge.judge(with_planted({functor(rule)}), 0);
  };
  const Verdict noisy =
      judged("  morphism y = gelu(x) where inside chain\n    -> sin(10000000*y)\n");
  EXPECT_TRUE(noisy.ok) << noisy.tensor << " is off by " << noisy.error;
  EXPECT_FALSE(noisy.too_noisy.empty());
  for (const auto& [key, allowed] : noisy.too_noisy) {
    EXPECT_GT(allowed, kTooNoisy);
    EXPECT_EQ(noisy.judged.count(key), 0u) << to_string(key);
  }
  const Verdict calm = judged("  morphism y = gelu(x) where inside chain\n    -> sin(y)\n");
  EXPECT_TRUE(calm.too_noisy.empty());
  EXPECT_FALSE(calm.judged.empty());
}

}  // namespace
}  // namespace adjoint
