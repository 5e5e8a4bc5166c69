// What fuse joins and what it must not, as text; and on random chains of random body ops, in
// float32 and in 16 bits, that not one bit changes. Whole steps are in
// tests/train/exact_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"
#include "functors/random_chain.h"
#include "kernels/harness.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

void expect_left_alone(const char* text) { EXPECT_EQ(applied("fuse", text), text); }

// ---- what it joins ----

// The sum is read again later, so it stays a result; what lay between is a register now.
TEST(Fuse, ResidualDropoutAndNorm) {
  expect_becomes("fuse", R"s(scheme:
  input %0 a: f32[b=2, s=3, h=128]
  input %1 r: f32[b=2, s=3, h=128]
  parameter %2 w: f32[h=128]
  parameter %3 bias: f32[h=128]
  control %4 random: i64[counter=3]
  %5 d: f32[b=2, s=3, h=128] = dropout(%0, %4) {key="d", rate=0.5} @d
  %6 x: f32[b=2, s=3, h=128] = add(%1, %5) @x
  %7 n: f32[b=2, s=3, h=128] = layer_norm(%6, %2, %3) {eps=1e-05} @n
  return %6, %7
)s",
                 {"x, n = map(a, random, r, w, bias)"});
}

TEST(Fuse, GatedUnit) {
  expect_becomes("fuse", R"s(scheme:
  input %0 g: f32[s=3, h=8]
  input %1 u: f32[s=3, h=8]
  %2 t: f32[s=3, h=8] = tanh(%0) @t
  %3 y: f32[s=3, h=8] = mul(%2, %1) @y
  return %3
)s",
                 {"y = map(g, u)"});
}

// What lay in 16 bits is rounded in its register, and each result has the dtype that it had.
TEST(Fuse, CastsRound) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[n=8]
  %1 half: bf16[n=8] = cast(%0) {dtype="bf16"} @half
  %2 e: bf16[n=8] = exp(%1) @e
  %3 y: f32[n=8] = cast(%2) {dtype="f32"} @y
  return %2, %3
)s",
                 {"e, y = map(x)"});
}

// One value a row, and a sum over rows that nothing in the group reads.
TEST(Fuse, RowsAndSums) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[s=3, h=128]
  %1 m: f32[s=3, one=1] = map(%0) {body="rowsum(x0)/one"} @m
  %2 y: f32[s=3, h=128], %3 w: f32[h=128] = map(%0, %1) {body="t0 = sub(x0, x1); t0, t0/1"} @y
  return %2, %3
)s",
                 {"y, w = map(x)"});
}

// The product reads only what was there before, so it moves up to the exponential.
TEST(Fuse, AReaderMovesUpToItsMaker) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[s=3, h=8]
  parameter %1 w: f32[o=8, h=8]
  %2 e: f32[s=3, h=8] = exp(%0) @e
  %3 l: f32[s=3, o=8] = linear(%2, %1) @l
  %4 y: f32[s=3, h=8] = mul(%2, %0) @y
  %5 z: f32[s=3, o=8] = linear(%3, %1) @z
  return %4, %5
)s",
                 {"e, y = map(x)", "l = linear(e, w)", "z = linear(l, w)"});
}

TEST(Fuse, KeepsItsPlaceInTheStep) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[n=8]
  %1 a: f32[n=8] gradient = exp(%0) @p:grad backward epoch=2
  %2 b: f32[n=8] gradient = tanh(%1) @q:grad backward epoch=2
  return %2
)s",
                 {"b = map(x)"});
}

// h is computed again for dw alone, which waits for it; so does its slice. g is read once.
TEST(Fuse, ARecomputationJoinsTheGradientThatReadsIt) {
  expect_becomes(
      "fuse", R"s(scheme:
  input %0 g: f32[s=3, h=128]
  input %1 dy: f32[s=3, o=128]
  parameter %2 w: f32[o=128, h=128]
  %3 t: f32[s=3, h=128] = tanh(%0) @t:epoch1 backward epoch=1
  %4 h: f32[s=3, h=128] = mul(%3, %0) @h:epoch1 backward epoch=1
  %5 dw: f32[o=128, h=128] gradient = contract(%1, %4) {map="ao,ai->oi"} @w:grad backward
  %6 part: f32[o=64, h=128] gradient = slice(%5) {axis=0, size=64, start=0} @part:grad backward
  %7 dh: f32[s=3, h=128] gradient = contract(%1, %2) {map="ao,oi->ai"} @h:grad backward
  %8 dg: f32[s=3, h=128] gradient = mul(%7, %3) @g:grad backward
  return %6, %8
)s",
      {"dh = contract(dy, w)", "h, dg = map(g, dh)", "dw = contract(dy, h)", "part = slice(dw)"});
}

// The gradient reads x and not n, which is computed again from x for dw.
TEST(Fuse, ARecomputationJoinsTheGradientThatReadsTheSame) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[s=3, h=128]
  input %1 dy: f32[s=3, o=128]
  parameter %2 w: f32[o=128, h=128]
  %3 n: f32[s=3, h=128] = exp(%0) @n:epoch1 backward epoch=1
  %4 dw: f32[o=128, h=128] gradient = contract(%1, %3) {map="ao,ai->oi"} @w:grad backward
  %5 dn: f32[s=3, h=128] gradient = contract(%1, %2) {map="ao,oi->ai"} @n:grad backward
  %6 dx: f32[s=3, h=128] gradient = map(%5, %0) {body="mul(x0, exp(x1))"} @x:grad backward
  return %4, %6
)s",
                 {"dn = contract(dy, w)", "n, dx = map(x, dn)", "dw = contract(dy, n)"});
}

// ---- what it must not join ----

TEST(Fuse, NotAcrossPhasesEpochsAndSections) {
  expect_left_alone(R"s(scheme parts=2:
  input %0 x: f32[n=8]
  state %1 total: f32[n=8] init=zeros
  %2 a: f32[n=8] = exp(%0) @a prologue
  %3 b: f32[n=8] = exp(%2) @b
  %4 c: f32[n=8] = exp(%3) @c backward
  %5 d: f32[n=8] = exp(%4) @d backward epoch=1
  %6 e: f32[n=8] = exp(%5) @e backward epoch=2
  %7 sum: f32[n=8] = add(%1, %6) @sum backward epoch=2
  %8 f: f32[n=8] = exp(%7) @f backward epilogue
  loop %1 -> %7
  return %8
)s");
}

// y may not run before l, so e is not made beside it; and p, which waited for a value that is a
// register now, waits for what is made with it.
TEST(Fuse, WaitsForWhatItsMembersWaitedFor) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[s=3, h=8]
  parameter %1 w: f32[o=8, h=8]
  %2 e: f32[s=3, h=8] = exp(%0) @e
  %3 l: f32[s=3, o=8] = linear(%2, %1) @l
  %4 y: f32[s=3, h=8] = mul(%2, %0) @y after %3
  %5 a: f32[s=3, h=8] = tanh(%0) @a after %3
  %6 b: f32[s=3, h=8] = exp(%5) @b
  %7 p: f32[s=3, o=8] = linear(%0, %1) @p after %5
  return %3, %4, %6, %7
)s",
                 {"e = exp(x)", "l = linear(e, w)", "y = mul(e, x) after l", "b = map(x) after l",
                  "p = linear(x, w) after b"});
}

TEST(Fuse, NotASumNorAStretchedValue) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[s=3, h=8]
  parameter %1 w: f32[h=8]
  %2 sum: f32[h=8] = map(%0) {body="x0/1"} @sum
  %3 y: f32[h=8] = exp(%2) @y
  %4 z: f32[s=3, h=8] = add(%0, %3) @z
  return %4
)s");
}

// Sums over other axes share their rows out otherwise.
TEST(Fuse, NotSumsOverOtherAxes) {
  const std::string text = R"s(scheme:
  input %0 x: f32[b=2, s=3, h=8]
  parameter %1 w: f32[o=4096, h=8]
  %2 large: f32[b=2, s=3, o=4096] = linear(%0, %1) @large
  %3 square: f32[] = square_sum(%2) @square
  %4 y: f32[b=2, s=3, h=8], %5 p: f32[s=3, h=8] = map(%0) {body="t0 = exp(x0); t0, t0/1"} @y
  %6 z: f32[b=2, s=3, h=8], %7 q: f32[h=8] = map(%4) {body="t0 = tanh(x0); t0, t0/2"} @z
  return %3, %5, %6, %7
)s";
  EXPECT_EQ(applied("fuse", text), text);
  // Over the same axes they are joined.
  std::string same = text;
  same.replace(same.find("t0/1"), 4, "t0/2").replace(same.find("[s=3, h=8]"), 10, "[h=8]");
  EXPECT_NE(applied("fuse", same), same);
}

// Joined, x and y live while z is made: more than at any other time.
TEST(Fuse, NotWhereTheMostWouldLiveAtOnce) {
  const char* text = R"s(scheme:
  input %0 in: f32[s=3, h=8]
  parameter %1 w: f32[o=512, h=8]
  %2 x: f32[s=3, o=512] = linear(%0, %1) @x
  %3 y: f32[s=3, o=512] = linear(%0, %1) @y
  %4 a: bf16[s=3, o=512] = map(%2, %3) {body="add(x0, x1)/bf16"} @a
  %5 z: f32[s=3, o=512] = cast(%4) {dtype="f32"} @z
  return %4, %5
)s";
  expect_left_alone(text);
}

// y reads the sum m; g takes m in, for both read x alone; y and g would then wait for each other.
TEST(Fuse, NotARecomputationThatReadsWhatTheGradientsGroupMakes) {
  const std::string text = applied("fuse", R"s(scheme:
  input %0 x: f32[s=256, h=128]
  input %1 dy: f32[s=256, h=128]
  parameter %2 w: f32[o=4096, h=128]
  %3 g: f32[s=256, h=128] gradient = mul(%1, %0) @g:grad backward
  %4 wide: f32[s=256, o=4096] gradient = linear(%1, %2) @wide:grad backward
  %5 back: f32[s=256, h=128] gradient = contract(%4, %2) {map="ao,oi->ai"} @back:grad backward
  %6 m: f32[h=128] = map(%0) {body="x0/1"} @m:epoch1 backward epoch=1
  %7 y: f32[s=256, h=128] = sub(%0, %6) @y:epoch1 backward epoch=1
  return %3, %5, %7
)s");
  EXPECT_NE(text.find("from=\"g:grad m:epoch1\""), std::string::npos) << text;
  EXPECT_NE(text.find("= sub("), std::string::npos) << text;
  // The gradient's name, though the recomputation stood behind it.
  EXPECT_NE(text.find("@g:grad backward\n"), std::string::npos) << text;
}

// dw could only wait if its own reader did, which would be joined with what dw waits for.
TEST(Fuse, NotARecomputationWhoseReaderCannotWait) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[s=128, h=128]
  input %1 dy: f32[s=128, o=128]
  parameter %2 w: f32[o=128, h=128]
  %3 n: f32[s=128, h=128] = exp(%0) @n:epoch1 backward epoch=1
  %4 dw: f32[o=128, h=128] gradient = contract(%1, %3) {map="ao,ai->oi"} @w:grad backward
  %5 dn: f32[s=128, h=128] gradient = contract(%1, %4) {map="ao,oi->ai"} @n:grad backward
  %6 dx: f32[s=128, h=128] gradient = map(%5, %0) {body="mul(x0, exp(x1))"} @x:grad backward
  return %4, %6
)s");
}

// dw needs a, and a needs the most room: a would live on beside what comes after dw today.
TEST(Fuse, NotARecomputationWhoseReaderWouldHoldTooMuch) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[s=3, h=128]
  input %1 in: f32[s=3, i=8]
  parameter %2 w: f32[o=512, i=8]
  parameter %3 v: f32[o=512, h=128]
  %4 a: f32[s=3, o=512] gradient = linear(%1, %2) @a backward
  %5 n: f32[s=3, h=128] = exp(%0) @n:epoch1 backward epoch=1
  %6 dw: f32[h=128, o=512] gradient = contract(%5, %4) {map="ao,ai->oi"} @w:grad backward
  %7 b: f32[s=3, o=512] gradient = linear(%1, %2) @b backward
  %8 dn: f32[s=3, h=128] gradient = contract(%7, %3) {map="ao,oi->ai"} @n:grad backward
  %9 dx: f32[s=3, h=128] gradient = map(%8, %0) {body="mul(x0, exp(x1))"} @x:grad backward
  return %6, %9
)s");
}

TEST(Fuse, NotAroundWhatLiesBetween) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[s=3, h=8]
  parameter %1 w: f32[o=8, h=8]
  %2 e: f32[s=3, h=8] = exp(%0) @e
  %3 l: f32[s=3, o=8] = linear(%2, %1) @l
  %4 y: f32[s=3, h=8] = mul(%2, %3) @y
  return %4
)s");
}

// No value leads from a through h to m, but the group {h0, h1, h2} is read by m and reads a.
TEST(Fuse, NotGroupsThatWaitForEachOther) {
  expect_becomes("fuse", R"s(scheme:
  input %0 x: f32[s=3, h=8]
  input %1 z: f32[h=8]
  %2 a: f32[s=3, h=8], %3 sum: f32[h=8] = map(%0) {body="t0 = exp(x0); t0, t0/1"} @a
  %4 h0: f32[h=8] = exp(%1) @h0
  %5 h1: f32[h=8] = mul(%4, %3) @h1
  %6 h2: f32[h=8] = tanh(%4) @h2
  %7 m: f32[s=3, h=8] = add(%2, %6) @m
  return %5, %7
)s",
                 {"a, sum = map(x)", "h1, h2 = map(z, sum)", "m = add(a, h2)"});
}

// The old state is read by t before it is written: {t, y} would be on both sides of the writer.
TEST(Fuse, NotWritersOfStateNorAroundThem) {
  expect_left_alone(R"s(scheme:
  state %0 m: f32[n=8] init=zeros
  input %1 x: f32[n=8]
  %2 t: f32[n=8] = exp(%0) @t update
  %3 d: f32[n=8] = tanh(%1) @d update
  %4 m: f32[n=8] state = add(%0, %3) @m update
  %5 y: f32[n=8] = sub(%4, %2) @y update
  carry %0 -> %4
  return %5
)s");
}

TEST(Fuse, NotIntegersNorKernelsOfTheirOwn) {
  expect_left_alone(R"s(scheme:
  %0 p: i32[s=5] = positions() {shape=[5]} @p
  %1 q: f32[s=5] = cast(%0) {dtype="f32"} @q
  %2 c: f32[n0=5, n1=1, n2=6], %3 c.sin: f32[n0=5, n1=1, n2=6] = rotary_table() {base=10000.0, shape=[5, 1, 6]} @c
  %4 y: f32[n0=5, n1=1, n2=6] = mul(%2, %3) @y
  return %1, %4
)s");
}

// Rows of 8: the elementwise op runs in pieces of 1024 alone, and would run in pieces of 8.
TEST(Fuse, NotLongPiecesWithShortRows) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[b=4, s=64, h=8]
  %1 e: f32[b=4, s=64, h=8] = exp(%0) @e
  %2 y: f32[b=4, s=64, h=8] = softmax(%1) @y
  return %2
)s");
}

TEST(Fuse, NotSingleNumbers) {
  expect_left_alone(R"s(scheme:
  input %0 x: f32[]
  %1 e: f32[] = exp(%0) @e
  %2 y: f32[] = tanh(%1) @y
  return %2
)s");
}

TEST(Fuse, StopsAtAReasonableLength) {
  std::string text = "scheme:\n  input %0 x: f32[n=8]\n";
  for (int i = 1; i <= 400; ++i) {
    text += "  %" + std::to_string(i) + " t" + std::to_string(i) + ": f32[n=8] = tanh(%" +
            std::to_string(i - 1) + ") @t" + std::to_string(i) + "\n";
  }
  const Scheme fused = apply_functor("fuse", parse_scheme(text + "  return %400\n"));
  EXPECT_GT(fused.morphisms.size(), 1u);
  EXPECT_LT(fused.morphisms.size(), 5u);
}

// ---- bits ----

TEST(FuseBits, RandomChainsAreTheSame) {
  int64_t before = 0, after = 0;
  for (unsigned seed = 0; seed < 90; ++seed) {
    const bool halves = seed % 3 == 2;
    RandomChain chain(seed, halves);
    const Scheme fused = apply_functor("fuse", chain.scheme);
    before += static_cast<int64_t>(chain.scheme.morphisms.size());
    after += static_cast<int64_t>(fused.morphisms.size());
    const std::string where =
        "seed " + std::to_string(seed) + "\n" + print(chain.scheme) + print(fused);
    expect_same_bits(run_scheme(fused, chain.inputs, false),
                     run_scheme(chain.scheme, chain.inputs, false), where);
    if (chain.inputs[0].size() > 30000) continue;  // the reference takes its time
    expect_same_bits(run_scheme(fused, chain.inputs, true),
                     run_scheme(chain.scheme, chain.inputs, true), "reference, " + where);
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(after, before * 3 / 4) << "the chains are there to be joined";
}

}  // namespace
}  // namespace adjoint
