// What living in the host writes: copies out, and back for each block that reads, held one block
// ahead.
#include <gtest/gtest.h>

#include "functors/functor_named.h"

namespace adjoint {
namespace {

std::string realized(const std::string& text) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after = realize_tier(before);
  verify(after);
  return print(after);
}

// Three blocks x -> a -> b -> c with one weight each, and their update.
const std::string kThree = R"(scheme:
  input %0 x: f32[n=4]
  control %1 rate: f32[]
  parameter %2 u: f32[n=4]
  parameter %3 v: f32[n=4]
  parameter %4 w: f32[n=4]
  state %5 u:sum: f32[n=4]
  %6 a: f32[n=4] = mul(%0, %2) @a
  %7 b: f32[n=4] = mul(%6, %3) @b
  %8 c: f32[n=4] = mul(%7, %4) @c
  %9 loss: f32[] metric = square_sum(%8) @loss
  %10 c:grad: f32[n=4] gradient = mul(%8, %9) @loss:grad backward
  %11 w:grad: f32[n=4] gradient = mul(%10, %7) @c:grad backward
  %12 b:grad: f32[n=4] gradient = mul(%10, %4) @c:grad backward
  %13 v:grad: f32[n=4] gradient = mul(%12, %6) @b:grad backward
  %14 a:grad: f32[n=4] gradient = mul(%12, %3) @b:grad backward
  %15 u:grad: f32[n=4] gradient = mul(%14, %0) @a:grad backward
  %16 u:sum: f32[n=4] state = add(%5, %15) @u:sum update
  %17 u: f32[n=4] parameter = add(%2, %16) @u update
  carry %5 -> %16
  carry %2 -> %17
  return %9, %11, %13
)";

TEST(Tier, NothingSaidNothingChanged) { EXPECT_EQ(realized(kThree), kThree); }

// a is read by the gradient of b's block. Its copy comes back when the block before that one in
// the backward, c's, begins: when c's gradient is there.
TEST(Tier, AnActivationGoesOutAndComesBackOneBlockAhead) {
  std::string want = kThree;
  want = replaced(want, "  %7 b:",
                  "  %18 a:host: f32[n=4] host = move(%6) {tier=\"host\"} @a:host\n"
                  "  %7 b:");
  want = replaced(want, "  %11 w:grad",
                  "  %19 a:fetched.backward: f32[n=4] = move(%18) {tier=\"device\"} "
                  "@a:fetched.backward backward after %10\n  %11 w:grad");
  want = replaced(want, "mul(%12, %6)", "mul(%12, %19)");
  EXPECT_EQ(realized(replaced(kThree, "%6 a: f32[n=4] =", "%6 a: f32[n=4] host =")), want);
}

// c's block is the last; what is made from its result is read at once by the backward.
TEST(Tier, WhatTheBackwardBeginsWithStays) {
  const std::string with_head =
      replaced(replaced(kThree, "  %9 loss: f32[] metric = square_sum(%8) @loss\n",
                        "  %18 head: f32[n=4] = tanh(%8) @head\n"
                        "  %9 loss: f32[] metric = square_sum(%18) @loss\n"),
               "mul(%8, %9)", "mul(%18, %9)");
  const std::string bare = print(parse_scheme(with_head));
  EXPECT_EQ(realized(replaced(with_head, "%18 head: f32[n=4] =", "%18 head: f32[n=4] host =")),
            bare);
  EXPECT_NE(realized(replaced(with_head, "%7 b: f32[n=4] =", "%7 b: f32[n=4] host =")), bare);
}

// What the backward makes stays where it is.
TEST(Tier, GradientsStay) {
  EXPECT_EQ(realized(replaced(kThree, "%12 b:grad: f32[n=4] gradient",
                              "%12 b:grad: f32[n=4] gradient host")),
            kThree);
}

// The state lives in the host; the update reads a copy and its result goes back.
TEST(Tier, StateComesForItsUpdateAndGoesBack) {
  std::string want = replaced(kThree, "state %5 u:sum: f32[n=4]", "state %5 u:sum: f32[n=4] host");
  want = replaced(want, "  %16 u:sum: f32[n=4] state = add(%5, %15) @u:sum update\n",
                  "  %18 u:sum.fetched.update: f32[n=4] state = move(%5) {tier=\"device\"} "
                  "@u:sum.fetched.update update after %15\n"
                  "  %16 u:sum.device: f32[n=4] state = add(%18, %15) @u:sum update\n"
                  "  %19 u:sum: f32[n=4] state host = move(%16) {tier=\"host\"} @u:sum update\n");
  want = replaced(want, "carry %5 -> %16", "carry %5 -> %19");
  EXPECT_EQ(realized(replaced(kThree, "state %5 u:sum: f32[n=4]", "state %5 u:sum: f32[n=4] host")),
            want);
}

// One copy of v for b's forward, which begins with a's block, and one for its backward, which
// begins with c's; nothing updates it.
TEST(Tier, AParameterComesOncePerBlockAndPhase) {
  std::string want = replaced(kThree, "parameter %3 v: f32[n=4]", "parameter %3 v: f32[n=4] host");
  want = replaced(want, "  %6 a:",
                  "  %18 v:fetched.forward: f32[n=4] parameter = move(%3) {tier=\"device\"} "
                  "@v:fetched.forward\n  %6 a:");
  want = replaced(want, "mul(%6, %3)", "mul(%6, %18)");
  want = replaced(want, "  %11 w:grad",
                  "  %19 v:fetched.backward: f32[n=4] parameter = move(%3) {tier=\"device\"} "
                  "@v:fetched.backward backward after %10\n  %11 w:grad");
  want = replaced(want, "mul(%12, %3)", "mul(%12, %19)");
  EXPECT_EQ(realized(replaced(kThree, "parameter %3 v: f32[n=4]", "parameter %3 v: f32[n=4] host")),
            want);
}

// The parameter that is updated: read in the forward of the first block (nothing to wait for), and
// for its update, behind which it goes home.
TEST(Tier, AnUpdatedParameterGoesHome) {
  const std::string after =
      realized(replaced(kThree, "parameter %2 u: f32[n=4]", "parameter %2 u: f32[n=4] host"));
  EXPECT_NE(after.find("  %18 u:fetched.forward: f32[n=4] parameter = move(%2) {tier=\"device\"} "
                       "@u:fetched.forward\n  %6 a: f32[n=4] = mul(%0, %18) @a\n"),
            std::string::npos)
      << after;
  EXPECT_NE(after.find("%17 u:device: f32[n=4] parameter = add(%19, %16) @u update\n"
                       "  %20 u: f32[n=4] parameter host = move(%17) {tier=\"host\"} @u update\n"),
            std::string::npos)
      << after;
  EXPECT_NE(after.find("carry %2 -> %20"), std::string::npos) << after;
}

// A view of an offloaded object is offloaded with it.
TEST(Tier, ViewsGoWithWhatTheyAreOf) {
  const std::string after = realized(R"(scheme:
  input %0 x: f32[b=2, n=4]
  %1 a: f32[b=2, n=4] host = exp(%0) @a
  %2 s: f32[b=2, parts=2, n/2=2] = split(%1) {parts=2} @s
  %3 loss: f32[] metric = square_sum(%2) @loss
  %4 g: f32[b=2, parts=2, n/2=2] gradient = mul(%2, %3) @loss:grad backward
  return %3, %4
)");
  EXPECT_EQ(after, R"(scheme:
  input %0 x: f32[b=2, n=4]
  %1 a: f32[b=2, n=4] = exp(%0) @a
  %2 s: f32[b=2, parts=2, n/2=2] = split(%1) {parts=2} @s
  %5 s:host: f32[b=2, parts=2, n/2=2] host = move(%2) {tier="host"} @s:host
  %3 loss: f32[] metric = square_sum(%2) @loss
  %6 s:fetched.backward: f32[b=2, parts=2, n/2=2] = move(%5) {tier="device"} @s:fetched.backward backward after %3
  %4 g: f32[b=2, parts=2, n/2=2] gradient = mul(%6, %3) @loss:grad backward
  return %3, %4
)");
}

// The view is made anew from the block's copy of the parameter.
TEST(Tier, AViewOfAParameterIsMadeAgainFromEachCopy) {
  const std::string after = realized(R"(scheme:
  input %0 x: f32[b=2, parts=2, n/2=2]
  parameter %1 w: f32[b=2, n=4] host
  %2 s: f32[b=2, parts=2, n/2=2] = split(%1) {parts=2} @s
  %3 y: f32[b=2, parts=2, n/2=2] = mul(%0, %2) @y
  %4 loss: f32[] metric = square_sum(%3) @loss
  %5 g: f32[b=2, parts=2, n/2=2] gradient = mul(%2, %4) @y:grad backward
  return %4, %5
)");
  EXPECT_NE(after.find("= mul(%0, %2) @y\n"), std::string::npos) << after;
  EXPECT_NE(after.find("parts=2, n/2=2] = split(%7) {parts=2} @s:fetched.backward backward\n"),
            std::string::npos)
      << after;
  EXPECT_NE(after.find("mul(%8, %4)"), std::string::npos) << after;
}

}  // namespace
}  // namespace adjoint
