// What simplify takes and what it must leave, as text. The bits of whole steps with and without it
// are compared in tests/train/exact_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

void expect_left_alone(const char* text) { EXPECT_EQ(applied("simplify", text), text); }

TEST(Simplify, TakesWhatNobodyReadsReturnsOrCarries) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[n=4]
  parameter %1 idle: f32[n=4]
  %2 dead: f32[n=4] = gelu(%0) @dead
  %3 also: f32[n=4] = exp(%2) @also
  %4 y: f32[n=4] = tanh(%0) @y
  %5 last: f32[n=4] = exp(%4) @last
  return %4
)s",
                 {"y = tanh(x)"});
}

// One live result of an op keeps its sisters; what is carried is as live as what is returned.
TEST(Simplify, KeepsSistersAndState) {
  expect_left_alone(R"s(scheme:
  input %0 count: f32[]
  control %1 scale: f32[]
  state %2 m: f32[] init=zeros
  %3 f: f32[], %4 f.ok: f32[] = gradient_factor(%0, %1) @f
  %5 next: f32[] state = add(%2, %3) @next update
  carry %2 -> %5
  return %0
)s");
}

// A map says its own body, so a result that nobody reads is left out of it, with what only that
// result read.
TEST(Simplify, AMapComputesOnlyWhatIsRead) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[n=4]
  input %1 w: f32[n=4]
  %2 a: f32[n=4], %3 a.1: f32[n=4] = map(%1, %0) {body="mul(x0, x1), exp(x1)"} @a
  return %3
)s",
                 {"a.1 = map(x)"});
}

// Without x the space and the dtype would be others: they are said.
TEST(Simplify, AMapKeepsItsSpaceAndDtypes) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: bf16[m=3, n=4]
  input %1 w: f32[n=4]
  %2 a: bf16[m=3, n=4], %3 a.1: bf16[m=3, n=4] = map(%0, %1) {body="mul(x0, x1), exp(x1)"} @a
  return %3
)s",
                 {"a.1 = map(w)"});
}

TEST(Simplify, ComputesWhatIsRepeatedOnce) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[n=4]
  control %1 random: i64[counter=3]
  %2 a: f32[n=4] = exp(%0) @a
  %3 b: f32[n=4] = exp(%0) @b
  %4 c: f32[n=4] = dropout(%2, %1) {key="k", rate=0.5} @c
  %5 d: f32[n=4] = dropout(%3, %1) {key="k", rate=0.5} @d
  %6 e: f32[n=4] = add(%4, %5) @e
  return %6
)s",
                 // The second pair is equal once the first is one.
                 {"a = exp(x)", "c = dropout(a, random)", "e = add(c, c)"});
}

TEST(Simplify, LeavesWhatOnlyLooksRepeated) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  control %1 random: i64[counter=3]
  %2 a: f32[n=4] = dropout(%0, %1) {key="k", rate=0.5} @a
  %3 b: f32[n=4] = dropout(%0, %1) {key="other", rate=0.5} @b
  %4 c: f32[n=4] = dropout(%0, %1) {key="k", rate=0.25} @c
  %5 d: f32[n=4] = sub(%2, %3) @d
  %6 e: f32[n=4] = sub(%3, %2) @e
  return %4, %5, %6
)s");
}

// A clone and its original, a forward and a backward value: to join them would keep one for longer.
TEST(Simplify, NeverMergesAcrossEpochsPhasesAndSections) {
  expect_left_alone(R"s(scheme parts=2:
  input %0 x: f32[n=4]
  state %1 total: f32[n=4] init=zeros
  %2 a: f32[n=4] = exp(%0) @a prologue
  %3 b: f32[n=4] = exp(%0) @b
  %4 c: f32[n=4] = exp(%0) @c backward
  %5 d: f32[n=4] = exp(%0) @d backward epoch=1
  %6 e: f32[n=4] = exp(%0) @e backward epoch=2
  %7 sum: f32[n=4] = map(%1, %2, %3, %4, %5, %6) {body="add(x0, add(x1, add(x2, add(x3, add(x4, x5)))))"} @sum backward
  %8 f: f32[n=4] = exp(%0) @f backward epilogue
  %9 g: f32[n=4] = mul(%7, %8) @g backward epilogue
  loop %1 -> %7
  return %9
)s");
}

// b is held back until g exists: to read a in its place would be to keep a until then.
TEST(Simplify, NeverMergesWhatIsHeldBack) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = exp(%0) @a
  %2 g: f32[n=4] = tanh(%1) @g
  %3 b: f32[n=4] = exp(%0) @b after %2
  %4 c: f32[n=4] = scale(%0) {by=1.0, plus=0.0} @c after %2
  %5 y: f32[n=4] = map(%2, %3, %4) {body="add(x0, mul(x1, x2))"} @y
  return %5
)s");
}

TEST(Simplify, NeverMergesOtherAttributes) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = exp(%0) @a
  %2 b: f32[n=4] precision="bf16" = exp(%0) @b
  %3 c: f32[n=4] = add(%1, %2) @c
  return %3
)s");
}

TEST(Simplify, NeverMergesWritersOfState) {
  expect_left_alone(R"s(scheme:
  parameter %0 p: f32[n=4] init=zeros
  parameter %1 q: f32[n=4] init=zeros
  input %2 g: f32[n=4]
  control %3 rate: f32[]
  control %4 factor: f32[]
  control %5 ok: f32[]
  %6 p: f32[n=4] parameter = sgd(%0, %2, %3, %4, %5) {decay=0.0} @p update
  %7 q: f32[n=4] parameter = sgd(%0, %2, %3, %4, %5) {decay=0.0} @q update
  carry %0 -> %6
  carry %1 -> %7
  return %2
)s");
}

TEST(Simplify, LeavesOutWhatPassesItsOperandOn) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = scale(%0) {by=1.0, plus=0.0} @a
  %2 b: f32[n=4] = cast(%1) {dtype="f32"} @b
  %3 c: f32[n=4], %4 c.1: f32[n=4] = map(%2) {body="x0, exp(x0)"} @c
  %5 y: f32[n=4] = add(%3, %4) @y
  return %5
)s",
                 {"c.1 = map(x)", "y = add(x, c.1)"});
}

// It is returned under its own name.
TEST(Simplify, KeepsAResultThatPassesItsOperandOn) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = scale(%0) {by=1.0, plus=0.0} @a
  return %1
)s");
}

TEST(Simplify, ACastThereAndBackIsNone) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: bf16[n=4]
  %1 wide: f32[n=4] = cast(%0) {dtype="f32"} @wide
  %2 back: bf16[n=4] = cast(%1) {dtype="bf16"} @back
  %3 y: bf16[n=4] = exp(%2) @y
  return %3
)s",
                 {"y = exp(x)"});
}

TEST(Simplify, ACastThatRounds) {
  for (const char* narrow : {"bf16", "f16"}) {
    const std::string n = narrow;
    const std::string text = "scheme:\n  input %0 x: f32[n=4]\n  %1 a: " + n +
                             "[n=4] = cast(%0) {dtype=\"" + n +
                             "\"} @a\n  %2 b: f32[n=4] = cast(%1) {dtype=\"f32\"} @b\n"
                             "  %3 y: f32[n=4] = exp(%2) @y\n  return %3\n";
    EXPECT_EQ(applied("simplify", text), text);
  }
  // Through another 16 bits and back is no way either.
  expect_left_alone(R"s(scheme:
  input %0 x: bf16[n=4]
  %1 a: f16[n=4] = cast(%0) {dtype="f16"} @a
  %2 b: bf16[n=4] = cast(%1) {dtype="bf16"} @b
  %3 y: bf16[n=4] = exp(%2) @y
  return %3
)s");
}

TEST(Simplify, AnExtraOperandOfTheSpaceIsNoIdentity) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  input %1 y: f32[m=2, n=4]
  %2 a: f32[m=2, n=4] = map(%0) {body="x0", shape=[2, 4]} @a
  %3 b: f32[m=2, n=4] = exp(%2) @b
  %4 c: f32[m=2, n=4] = add(%3, %1) @c
  return %4
)s");
}

TEST(Simplify, ViewsCancel) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[s=3, h=12]
  %1 a: f32[s=3, parts=4, h=3] = split(%0) {parts=4} @a
  %2 b: f32[s=3, h=12] = merge(%1) @b
  %3 c: f32[s=3, parts=2, h=6] = split(%2) {parts=2} @c
  %4 y: f32[s=3, parts=2, h=6] = exp(%3) @y
  %5 d: f32[s=3, h=12] = slice(%0) {size=12, start=0} @d
  %6 z: f32[s=3, h=12] = exp(%5) @z
  return %4, %6
)s",
                 {"c = split(x)", "y = exp(c)", "z = exp(x)"});
}

TEST(Simplify, ViewsThatDoNotCancel) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[s=3, h=12]
  %1 a: f32[s=3, parts=4, h=3] = split(%0) {parts=4} @a
  %2 b: f32[s=3, h=12] = merge(%1) @b
  %3 c: f32[s=3, h=6] = slice(%0) {size=6, start=3} @c
  %4 d: f32[s=3, h=6] = slice(%0) {size=6, start=6} @d
  %5 y: f32[s=3, h=6] = add(%3, %4) @y
  return %2, %5
)s");
}

TEST(Simplify, FoldsBodies) {
  expect_becomes("simplify", R"s(scheme:
  input %0 x: f32[n=4]
  input %1 w: f32[n=4]
  %2 y: f32[n=4] = map(%0, %1) {body="add(mul(x0, div(2, 2)), select(less(1, 2), neg(neg(x0)), x1))"} @y
  return %2
)s",
                 {"y = map(x)"});
}

// -0 + 0 is 0; 0.1 + 0.2 is one number in float32 and another in float64.
TEST(Simplify, FoldsNoBits) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[n=4]
  %1 y: f32[n=4] = map(%0) {body="mul(add(x0, 0), add(0.1, 0.2))"} @y
  return %1
)s");
}

// y is added to the state as it was; the state itself is written by then.
TEST(Simplify, ACopyOfStateStaysWhereTheStateIsWritten) {
  expect_left_alone(R"s(scheme:
  state %0 m: f32[n=4] init=zeros
  input %1 x: f32[n=4]
  %2 old: f32[n=4] = scale(%0) {by=1.0, plus=0.0} @old
  %3 m: f32[n=4] state = add(%0, %1) @m update
  %4 y: f32[n=4] = sub(%3, %2) @y update
  carry %0 -> %3
  return %4
)s");
}

TEST(Simplify, IsIdempotent) {
  const char* text = R"s(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = exp(%0) @a
  %2 b: f32[n=4] = exp(%0) @b
  %3 c: f32[n=4], %4 c.1: f32[n=4] = map(%1, %2) {body="mul(x0, 1), mul(x1, x0)"} @c
  %5 d: f32[n=4] = add(%3, %4) @d
  return %5
)s";
  const Scheme once = apply_functor("simplify", parse_scheme(text));
  EXPECT_EQ(apply_functor("simplify", once), once);
}

}  // namespace
}  // namespace adjoint
