// A step in time: what goes where, what is refused, and the law: the gradients of a batch in parts
// are those of the whole batch, summed in another order.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "functors/phases.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "functors/with_rules.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

std::string in_parts(std::string_view text) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after = realize_time(before, "accumulate");
  verify(after);
  return print(after);
}

Scheme with_parts(Scheme scheme, int parts) {
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kInput) scheme[in].attributes.parts = parts;
  }
  return scheme;
}

// ---- what goes where ----

TEST(RealizeTime, LeavesAStepOfOnePartAlone) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=4, in=3]
  %1 y: f32[batch=4, in=3] = gelu(%0) @y
  return %1
)";
  EXPECT_EQ(in_parts(text), text);
}

TEST(RealizeTime, TheBodyIsTheStepOfAPartAndSumsAreAccumulated) {
  EXPECT_EQ(in_parts(R"(scheme m:
  input %0 x: f32[batch=4, in=3] parts=2
  input %1 y: i32[batch=4] parts=2
  parameter %2 w: f32[out=5, in=3]
  %3 logits: f32[batch=4, out=5] = linear(%0, %2) @logits
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[batch=4] = cross_entropy(%3, %1) {ignore=-7} @loss
  return %4, %5
)"),
            R"(scheme m parts=2:
  input %0 x: f32[batch=4, in=3]
  input %1 y: i32[batch=4]
  parameter %2 w: f32[out=5, in=3]
  %7 part:index: i32[] control = fill() {dtype="i32", shape=[], value=0.0} @part:index prologue
  %11 loss:begin: f32[] metric = fill() {dtype="f32", shape=[], value=0.0} @loss:begin prologue
  %13 loss.count:begin: f32[] metric = fill() {dtype="f32", shape=[], value=0.0} @loss.count:begin prologue
  %9 x:part: f32[batch=2, in=3] = part(%0, %7) {fill=0, size=2} @x:part
  %3 logits: f32[batch=2, out=5] = linear(%9, %2) @logits
  %10 y:part: i32[batch=2] = part(%1, %7) {fill=-7, size=2} @y:part
  %4 loss:part: f32[] metric, %5 loss.count:part: f32[] metric, %6 loss.lse: f32[batch=2] = cross_entropy(%3, %10) {ignore=-7} @loss
  %12 loss: f32[] metric = add(%11, %4) @loss
  %14 loss.count: f32[] metric = add(%13, %5) @loss.count
  %8 part:index: i32[] control = map(%7) {body="add(x0, 1)/i32"} @part:index
  loop %7 -> %8
  loop %11 -> %12
  loop %13 -> %14
  return %12, %14
)");
}

// What depends on no data: before the body where the body reads it, else after. Linear ops of
// partial sums are summed once, at their end.
TEST(RealizeTime, SumsAreSummedLateAndTheRestRunsOnce) {
  EXPECT_EQ(in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=4
  parameter %1 w: f32[n=3]
  control %2 c: f32[]
  %3 before: f32[n=3] = gelu(%1) @before
  %4 after: f32[] = gelu(%2) @after
  %5 y: f32[batch=4, n=3] = mul(%0, %3) @y
  %6 a: f32[n=3] = map(%5) {body="x0/1"} @a
  %7 b: f32[n=3] = map(%0) {body="x0/1"} @b
  %8 sum: f32[n=3] = add(%6, %7) @sum
  %9 half: f32[n=3] = scale(%8) {by=0.5} @half
  %10 out: f32[n=3] = mul(%9, %4) @out
  return %10
)"),
            R"(scheme m parts=4:
  input %0 x: f32[batch=4, n=3]
  parameter %1 w: f32[n=3]
  control %2 c: f32[]
  %11 part:index: i32[] control = fill() {dtype="i32", shape=[], value=0.0} @part:index prologue
  %3 before: f32[n=3] = gelu(%1) @before prologue
  %14 half:begin: f32[n=3] = fill() {dtype="f32", shape=[3], value=0.0} @half:begin prologue
  %13 x:part: f32[batch=1, n=3] = part(%0, %11) {fill=0, size=1} @x:part
  %5 y: f32[batch=1, n=3] = mul(%13, %3) @y
  %6 a: f32[n=3] = map(%5) {body="x0/1"} @a
  %7 b: f32[n=3] = map(%13) {body="x0/1"} @b
  %8 sum: f32[n=3] = add(%6, %7) @sum
  %9 half:part: f32[n=3] = scale(%8) {by=0.5} @half
  %15 half: f32[n=3] = add(%14, %9) @half
  %12 part:index: i32[] control = map(%11) {body="add(x0, 1)/i32"} @part:index
  %4 after: f32[] = gelu(%2) @after epilogue
  %10 out: f32[n=3] = mul(%15, %4) @out epilogue
  loop %11 -> %12
  loop %14 -> %15
  return %10
)");
}

// A sum and something that is no sum do not add up part by part.
TEST(RealizeTime, APartialSumBesideAnythingElseIsSummedFirst) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  parameter %1 w: f32[n=3]
  %2 sum: f32[n=3] = map(%0) {body="x0/1"} @sum
  %3 out: f32[n=3] = add(%2, %1) @out
  %4 more: f32[n=3] = scale(%2) {by=2.0, plus=1.0} @more
  return %3, %4
)");
  EXPECT_TRUE(has(text, "out: f32[n=3] = add(%9, %1) @out epilogue")) << text;
  EXPECT_TRUE(has(text, "= scale(%9) {by=2.0, plus=1.0} @more epilogue")) << text;
}

// A product of which only the sum is read adds to it in place; a product that is read itself, or
// that has an addend already, does not.
TEST(RealizeTime, AProductAddsToItsSum) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  %2 a: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @a
  %3 b: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @b
  %4 c: f32[n=3, k=2] = contract(%0, %1, %3) {map="bn,bk->nk"} @c
  %5 last: f32[n=3, k=2] = mul(%2, %4) @last
  return %5, %3
)");
  EXPECT_TRUE(has(text, "%2 a: f32[n=3, k=2] = contract(%8, %9, %10) {map=\"bn,bk->nk\"} @a\n"))
      << text;
  EXPECT_TRUE(has(text, "loop %10 -> %2\n")) << text;
  EXPECT_TRUE(has(text, "%3 b:part: f32[n=3, k=2] = contract(%8, %9) {map")) << text;
  EXPECT_TRUE(has(text, "%12 b: f32[n=3, k=2] = add(%11, %3) @b\n")) << text;
  EXPECT_TRUE(has(text, "%4 c:part: f32[n=3, k=2] = contract(%8, %9, %3) {map")) << text;
  EXPECT_TRUE(has(text, "%14 c: f32[n=3, k=2] = add(%13, %4) @c\n")) << text;
  EXPECT_TRUE(has(text, "= mul(%2, %14) @last epilogue\n")) << text;
  EXPECT_TRUE(has(text, "return %5, %12\n")) << text;
}

// Joined projections have one gradient and slices of it: the joined one is summed, by the product
// that makes it, and seen in slices afterwards.
TEST(RealizeTime, WhatIsSeenInSlicesIsSummedWhole) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  %2 both: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @both
  %3 a: f32[n=2, k=2] = slice(%2) {axis=0, size=2, start=0} @a
  %4 b: f32[n=1, k=2] = slice(%2) {axis=0, size=1, start=2} @b
  %5 c: f32[n=2, k=2] = mul(%3, %3) @c
  %6 d: f32[n=1, k=2] = mul(%4, %4) @d
  return %5, %6
)");
  EXPECT_TRUE(has(text, "%2 both: f32[n=3, k=2] = contract(%9, %10, %11) {map")) << text;
  EXPECT_TRUE(has(text, "loop %11 -> %2\n")) << text;
  EXPECT_TRUE(has(text, "slice(%2) {axis=0, size=2, start=0} @a epilogue\n")) << text;
  EXPECT_FALSE(has(text, " add(")) << text;
}

// Where only a part of it is seen, that part is summed: the rest is nobody's.
TEST(RealizeTime, WhatIsSeenInPartIsSummedInPart) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  %2 both: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @both
  %3 a: f32[n=2, k=2] = slice(%2) {axis=0, size=2, start=0} @a
  %4 c: f32[n=2, k=2] = mul(%3, %3) @c
  return %4
)");
  EXPECT_TRUE(has(text, "a: f32[n=2, k=2] = add(")) << text;
}

// The two gradients of a tied table have one sum, which the product begins with.
TEST(RealizeTime, AProductUnderAnAdditionBeginsWithTheSum) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  input %2 z: f32[batch=4, n=3, k=2] parts=2
  %3 a: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @a
  %4 b: f32[n=3, k=2] = map(%2) {body="x0/1"} @b
  %5 sum: f32[n=3, k=2] = add(%4, %3) @sum
  %6 last: f32[n=3, k=2] = mul(%5, %5) @last
  return %6
)");
  EXPECT_TRUE(has(text, "%3 a: f32[n=3, k=2] = contract(%9, %10, %12) {map")) << text;
  EXPECT_TRUE(has(text, "%5 sum: f32[n=3, k=2] = add(%4, %3) @sum\n")) << text;
  EXPECT_TRUE(has(text, "loop %12 -> %5\n")) << text;
}

// A term that counts twice would take the sum so far twice, too.
TEST(RealizeTime, ATermThatCountsTwiceIsMadeApart) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  %2 a: f32[n=3, k=2] = contract(%0, %1) {map="bn,bk->nk"} @a
  %3 twice: f32[n=3, k=2] = add(%2, %2) @twice
  %4 last: f32[n=3, k=2] = mul(%3, %3) @last
  return %4
)");
  EXPECT_TRUE(has(text, "%2 a: f32[n=3, k=2] = contract(%7, %8) {map")) << text;
  EXPECT_TRUE(has(text, "twice: f32[n=3, k=2] = add(%9, %3) @twice\n")) << text;
}

// A 16-bit sum whose readers make the same of float32 is never rounded: the sum is there anyway.
TEST(RealizeTime, ANarrowSumIsReadAsItIs) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: bf16[batch=4, n=3] parts=2
  input %1 y: bf16[batch=4, k=2] parts=2
  %2 a: bf16[n=3, k=2] gradient = contract(%0, %1) {map="bn,bk->nk"} @a
  %3 squares: f32[] metric = square_sum(%2) @squares
  return %3
)");
  EXPECT_TRUE(has(text, "%2 a: f32[n=3, k=2] gradient = contract(%6, %7, %8) {dtype=\"f32\", map"))
      << text;
  EXPECT_FALSE(has(text, "cast(")) << text;
}

TEST(RealizeTimeRefuses, AnAddendThatWouldCountOncePerPart) {
  EXPECT_EQ(error_text([] {
              in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, k=2] parts=2
  parameter %2 w: f32[n=3, k=2]
  %3 a: f32[n=3, k=2] = contract(%0, %1, %2) {map="bn,bk->nk"} @a
  return %3
)");
            }),
            "accumulate: contract at a would add 'w' once per part");
}

// 16-bit sums go through float32 and are rounded to their own precision once.
TEST(RealizeTime, SumsOfNarrowPartsAreFloat32) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: bf16[batch=4, n=3] parts=2
  %1 sum: bf16[n=3] = map(%0) {body="x0/1"} @sum
  return %1
)");
  EXPECT_TRUE(has(text, "%1 sum:part: f32[n=3] = map(%4) {body=\"x0/1/f32\"} @sum\n")) << text;
  EXPECT_TRUE(has(text, "%6 sum:sum: f32[n=3] = add(%5, %1) @sum:sum")) << text;
  EXPECT_TRUE(has(text, "%7 sum: bf16[n=3] = cast(%6) {dtype=\"bf16\"} @sum epilogue")) << text;
}

// An object with samples that depends on no data is taken in parts like the data; a shape that is
// said in an attribute is that of a part.
TEST(RealizeTime, WhatHasSamplesOfItsOwnIsTakenInParts) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  parameter %1 mask: f32[batch=4, n=3]
  %2 y: f32[batch=4, n=3] = mul(%0, %1) @y
  %3 wide: f32[k=2, batch=4, n=3] = map(%2) {body="x0", shape=[2, 4, 3]} @wide
  %4 sum: f32[] = square_sum(%3) @sum
  return %4
)");
  EXPECT_TRUE(has(text, "mask:part: f32[batch=2, n=3] = part(%1, %5) {fill=0, size=2}")) << text;
  EXPECT_TRUE(has(text, "wide: f32[k=2, batch=2, n=3] = map(%2) {body=\"x0\", shape=[2, 2, 3]}"))
      << text;
}

// An object that is larger than its operands is made in every part, unless the epilogue reads it
// too.
TEST(RealizeTime, WhatExpandsStaysInTheBody) {
  const std::string text = in_parts(R"(scheme m:
  input %0 x: f32[batch=4, n=3] parts=2
  parameter %1 w: f32[n=3]
  %2 wide: f32[k=2, n=3] = map(%1) {body="x0", shape=[2, 3]} @wide
  %3 wider: f32[k=2, n=3] = gelu(%2) @wider
  %4 both: f32[k=2, n=3] = map(%1) {body="x0", shape=[2, 3]} @both
  %5 y: f32[batch=4, k=2] = contract(%0, %3) {map="bn,kn->bk"} @y
  %6 z: f32[batch=4, k=2] = contract(%0, %4) {map="bn,kn->bk"} @z
  %7 sy: f32[] = square_sum(%5) @sy
  %8 sz: f32[] = square_sum(%6) @sz
  %9 last: f32[k=2, n=3] = gelu(%4) @last
  return %7, %8, %9
)");
  EXPECT_TRUE(has(text, "shape=[2, 3]} @wide\n")) << text;
  EXPECT_TRUE(has(text, "= gelu(%2) @wider\n")) << text;
  EXPECT_TRUE(has(text, "shape=[2, 3]} @both prologue\n")) << text;
  EXPECT_TRUE(has(text, "= gelu(%4) @last epilogue\n")) << text;
}

// ---- refusals ----

std::string refusal(std::string_view text) {
  return error_text([&] { in_parts(text); });
}

TEST(RealizeTimeRefuses, MorePartsThanSamples) {
  EXPECT_EQ(refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=8
  %1 sum: f32[n=3] = map(%0) {body="x0/1"} @sum
  return %1
)"),
            "accumulate: the batch has 4 samples, so at most 4 parts; found 8");
  EXPECT_EQ(refusal(R"(scheme:
  input %0 x: f32[batch=1, n=3] parts=2
  %1 sum: f32[n=3] = map(%0) {body="x0/1"} @sum
  return %1
)"),
            "accumulate: the batch has 1 sample, so at most 1 part; found 2");
}

// A functor of the user's that says `in n parts` is told by its own name.
TEST(RealizeTimeRefuses, InTheNameOfTheFunctorThatSaidParts) {
  const Scheme forward = elaborate_preset("char", {{"layers", 1}, {"batch", 2}});
  const Stack stack = with_rules("  object input -> in 3 parts");
  EXPECT_EQ(error_text([&] { build_step(forward, stack, {}); }),
            "f: the batch has 2 samples, so at most 2 parts; found 3");
}

TEST(RealizeTimeRefuses, InputsThatDisagree) {
  EXPECT_EQ(refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[batch=4, n=3]
  %2 z: f32[batch=4, n=3] = add(%0, %1) @z
  return %2
)"),
            "accumulate: 'x' comes in 2 parts and 'y' in 1; a batch has one number");
  EXPECT_TRUE(has(refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  input %1 y: f32[rows=5, n=3] parts=2
  return %0
)"),
                  "'y' is f32[rows=5, n=3]; every input of the batch must begin with"));
}

TEST(RealizeTimeRefuses, SamplesThatLeaveTheStep) {
  EXPECT_EQ(refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  %1 y: f32[batch=4, n=3] = gelu(%0) @y
  return %1
)"),
            "accumulate: 'y' leaves the step with its samples (axis batch), and only sums over the "
            "batch can leave a step in parts");
}

TEST(RealizeTimeRefuses, AnOpThatNeedsTheSamplesWhole) {
  EXPECT_EQ(
      refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  %1 flat: f32[n=12] = merge(%0) @flat
  %2 sum: f32[] = square_sum(%1) @sum
  return %2
)"),
      "accumulate: merge at flat needs the axis batch=4 of 'x' whole, and that axis holds the "
      "samples that come in parts");
  EXPECT_TRUE(has(refusal(R"(scheme:
  input %0 x: f32[batch=4] parts=2
  %1 y: f32[batch=4] = softmax(%0) @y
  return %1
)"),
                  "softmax at y needs the axis batch=4 of 'x' whole"));
}

TEST(RealizeTimeRefuses, ASumThatItsOwnSamplesNeed) {
  EXPECT_EQ(
      refusal(R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  %1 sum: f32[n=3] = map(%0) {body="x0/1"} @sum
  %2 centered: f32[batch=4, n=3] = sub(%0, %1) @centered
  %3 squares: f32[] = square_sum(%2) @squares
  return %3
)"),
      "accumulate: sub at centered needs 'sum', a sum over the whole batch, while the samples "
      "still come in parts");
}

// Samples past the end count for nothing in a cross entropy; elsewhere they would.
TEST(RealizeTimeRefuses, PaddingThatWouldCount) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=5, n=3] parts=2
  %1 sum: f32[n=3] = map(%0) {body="exp(x0)/1"} @sum
  return %1
)";
  EXPECT_EQ(refusal(text),
            "accumulate: map at sum sums over all samples, and the last part has some that do not "
            "count; choose a number of parts that divides the batch");
}

// A sample that pads a part is ignored by every loss, which one value cannot say here.
TEST(RealizeTimeRefuses, PaddingOfTargetsWithTwoMeanings) {
  const Scheme forward = elaborate_text(R"(axes hidden=4 vocab=5 batch=5 seq=3
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab)
  loss = cross_entropy(linear(x, vocab), targets) + average(sum(x*x), targets, ignore=2)
)");
  EXPECT_EQ(
      error_text([&] { training_step(forward, {.stack = "accumulate(2)"}); }),
      "accumulate: losses ignore -1 and 2 of 'targets', and the last part has samples that do "
      "not count; choose a number of parts that divides the batch");
  EXPECT_EQ(training_step(forward, {.stack = "accumulate(5)"}).parts, 5);
}

TEST(RealizeTimeRefuses, RandomNumbersOfSamplesThatAreNotFirst) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=4, n=3] parts=2
  parameter %1 w: f32[o=2, n=3]
  control %2 random: i64[counter=3]
  %3 y: f32[o=2, batch=4] = contract(%1, %0) {map="on,bn->ob"} @y
  %4 z: f32[o=2, batch=4] = dropout(%3, %2) {key="z", rate=0.5} @z
  %5 sum: f32[] = square_sum(%4) @sum
  return %5
)";
  EXPECT_TRUE(has(refusal(text), "dropout at z needs the axis batch=4 of 'y' whole"))
      << refusal(text);
}

// ---- numbers ----

std::vector<Numbers> run_in_parts(const char* text, int parts, const std::vector<Numbers>& in) {
  return run_scheme(realize_time(with_parts(parse_scheme(text), parts), "accumulate"), in, false);
}

// In float32 and in the order of the parts the first 1 is lost and the second is not.
TEST(RealizeTimeNumbers, SumsAreFloat32InTheOrderOfTheParts) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=4, n=2]
  %1 sum: f32[n=2] = map(%0) {body="x0/1"} @sum
  return %1
)";
  const Numbers x = {1e8, 1, 1, 2, -1e8, 3, 1, 4};
  EXPECT_EQ(run_in_parts(text, 4, {x})[0], (Numbers{1, 10}));
  const Numbers other = {1e8, 1, -1e8, 2, 1, 3, 1, 4};
  EXPECT_EQ(run_in_parts(text, 4, {other})[0], (Numbers{2, 10}));
}

// Sums of whole numbers have no order, so that equal masks give equal bits.
TEST(RealizeTimeNumbers, MasksAreThoseOfTheWholeBatch) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=6, n=50]
  control %1 random: i64[counter=3]
  %2 y: f32[batch=6, n=50] = dropout(%0, %1) {key="y", rate=0.5} @y
  %3 sum: f32[n=50] = map(%2) {body="x0/1"} @sum
  return %3
)";
  Numbers x(300);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<double>(1 << (i / 50));  // tells who fell
  const Numbers counter = {7, 3, 20};           // a later part of a larger batch
  const auto whole = run_scheme(parse_scheme(text), {x, counter}, false);
  for (const int parts : {2, 3, 6}) {
    EXPECT_EQ(run_in_parts(text, parts, {x, counter}), whole) << parts;
  }
}

// ---- the law ----

// Adam divides a gradient by its size, and so turns a rounding error of a tiny one into a step of
// full length, whatever the split; with this eps it does not.
constexpr double kEps = 1e-2;

struct Case {
  std::string model;
  int64_t batch;
  int parts;
  StepOptions options = {.eps = kEps};
};

Scheme forward_of(const Case& c) {
  std::map<std::string, double> settings = {{"batch", static_cast<double>(c.batch)},
                                            {"layers", 2},
                                            {"vocab", 19},
                                            {"context", 6},
                                            {"dropout", 0.2}};
  if (c.model == "char") settings.insert({{"hidden", 16}, {"heads", 2}});
  return elaborate_preset(c.model, settings);
}

// The step with every parameter's gradient among its outputs.
Scheme traced(const Scheme& forward, const StepOptions& options) {
  Scheme step = training_step(forward, options);
  for (const Value in : std::vector<Value>(step.inputs)) {
    if (step[in].role != Role::kParameter || step[in].frozen) continue;
    const auto gradient = step.find({step[in].source.path, "grad"});
    EXPECT_TRUE(gradient) << step[in].source.path;
    if (gradient) step.outputs.push_back(*gradient);
  }
  return step;
}

// Two steps on ragged targets: sample 1 has none, the last sample's first half has none. Outputs of
// both, then parameters and state.
std::vector<Numbers> two_steps(const Scheme& scheme, bool reference, unsigned seed,
                               bool all_ignored = false) {
  const Scheme s = reference ? to_reference(scheme) : scheme;
  Run run(s, make_plan(s, {.threads = num_threads()}), {.reference = reference, .poison = true});
  initialize(run, seed);
  for (const Value in : s.inputs) {  // both begin with the float32 numbers
    if (!s[in].init) continue;
    Numbers x = run.values(in);
    for (double& value : x) value = round_element(value, Dtype::kF32);
    run.set_values(in, x);
  }
  std::vector<Numbers> results;
  for (int number = 0; number < 2; ++number) {
    std::mt19937 random(seed + number);
    for (const Value in : s.inputs) {
      const Object& object = s[in];
      if (object.source.path == "rate") run.set_number(in, 1e-2);
      if (object.source.path == "random") {
        run.set_values(in, {static_cast<double>(seed), static_cast<double>(number), 0});
      }
      if (object.role != Role::kInput) continue;
      Numbers ids(object.type.num_elements());
      const size_t seq = object.type.dim(1), last = object.type.dim(0) - 1;
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<double>(random() % 19);
        const bool ignored = i / seq == 1 || (i / seq == last && i % seq < seq / 2);
        if (object.source.path == "targets" && (ignored || all_ignored)) ids[i] = -1;
      }
      run.set_values(in, ids);
    }
    run.step();
    for (const Value out : s.outputs) results.push_back(run.values(out));
  }
  for (const Carry& c : s.carries) results.push_back(run.values(c.out));
  return results;
}

void expect_law(const Case& c, const Scheme& forward) {
  SCOPED_TRACE(c.model + " batch " + std::to_string(c.batch) + " parts " + std::to_string(c.parts) +
               " " + c.options.optimizer);
  const Scheme whole = traced(forward, c.options);
  const Scheme split = traced(with_parts(forward, c.parts), c.options);
  EXPECT_GT(split.parts, 1);
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto want = two_steps(whole, true, seed), plain = two_steps(whole, false, seed),
               got = two_steps(split, false, seed), reference = two_steps(split, true, seed);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      // Parts that are rounded to less than float32 are rounded one by one.
      if (c.options.stack.empty()) {
        EXPECT_LT(relative_error(reference[k], want[k]), 1e-9) << "reference, result " << k;
      }
      const double error = relative_error(plain[k], want[k]);
      EXPECT_LE(relative_error(got[k], want[k]), 8 * std::max(error, 1e-7)) << "result " << k;
    }
  }
}

void expect_law(const Case& c) { expect_law(c, forward_of(c)); }

TEST(RealizeTimeLaw, Gpt2InEvenParts) {
  expect_law({"char", 4, 2});
  expect_law({"char", 4, 4});
}
TEST(RealizeTimeLaw, Gpt2InUnevenParts) {
  for (const int parts : {2, 3, 4}) expect_law({"char", 5, parts});
}
TEST(RealizeTimeLaw, Llama) {
  expect_law({"llama-tiny", 4, 2});
  expect_law({"llama-tiny", 5, 3});
}
TEST(RealizeTimeLaw, EveryOptimizerWithAndWithoutClipping) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double clip : {0.0, 1.0}) {
      expect_law({"char", 4, 4, {.optimizer = optimizer, .eps = kEps, .clip = clip}});
    }
  }
}

// Beside other functors: the same stack without parts is the baseline.
TEST(RealizeTimeLaw, BesidePrecisionAndAdapters) {
  for (const char* stack :
       {"bf16", "fp16", "lora(rank=2)", "quantize(int8, per=channel) | lora(rank=2)",
        "checkpoint(every=1)", "offload(activations)", "chunk_readout(3)"}) {
    SCOPED_TRACE(stack);
    expect_law({"char", 5, 3, {.eps = kEps, .stack = stack}});
  }
}

// A loss whose gradient is derived from its body masks its rows by itself, and the samples that pad
// the last part are masked, too.
TEST(RealizeTimeLaw, UnevenPartsOfOtherLosses) {
  const Scheme forward = elaborate_text(R"(axes hidden=8 vocab=19 batch=5 seq=6
model tokens[batch, seq], targets[batch, seq]:
  x = tanh(linear(embed(tokens, vocab), hidden))
  loss = cross_entropy(linear(x, vocab), targets) + 0.1*average(sum(x*x), targets)
)");
  expect_law({"two losses", 5, 2}, forward);
}

TEST(RealizeTimeLaw, IsWhatTheFunctorOfThatNameDoes) {
  const Scheme forward = forward_of({"char", 4, 2});
  EXPECT_EQ(print(training_step(forward, {.stack = "accumulate(2)"})),
            print(training_step(with_parts(forward, 2), {})));
}

// Where nothing is counted at all, nothing is updated.
TEST(RealizeTimeLaw, NothingCountedIsNothingLearned) {
  const Scheme forward = forward_of({"char", 4, 2});
  const Scheme step = training_step(with_parts(forward, 2), {});
  const auto got = two_steps(step, false, 1, true);
  EXPECT_EQ(got[0], Numbers{0}) << "loss";
  EXPECT_EQ(got[1], Numbers{0}) << "count";
  adjoint::Run fresh(step, make_plan(step, {.threads = num_threads()}));
  initialize(fresh, 1);
  const size_t first = got.size() - step.carries.size();
  for (size_t k = 0; k < step.carries.size(); ++k) {
    EXPECT_EQ(got[first + k], fresh.values(step.carries[k].in));
  }
}

TEST(RealizeTimeLaw, EvaluationInPartsSumsAndCounts) {
  const Scheme forward = without_randomness(forward_of({"char", 5, 1}));
  const auto want = two_steps(forward, true, 1);
  for (const int parts : {2, 5}) {
    const Scheme split = evaluation_scheme(with_parts(forward, parts), parse_stack(""), {});
    const auto got = two_steps(split, false, 1);
    ASSERT_EQ(got.size(), 4u);
    EXPECT_LT(relative_error(got[0], want[0]), 1e-6);
    EXPECT_EQ(got[1], (Numbers{21})) << "5 samples of 6, less one and a half";
  }
}

// One accumulator for the sum of a tied weight's gradients: one per parameter, the loss's pair, and
// the index.
TEST(RealizeTimeLaw, ATiedWeightHasOneAccumulator) {
  const Scheme step = training_step(with_parts(forward_of({"char", 4, 2}), 2), {});
  const auto parameters = paths_of(step, Role::kParameter);
  EXPECT_EQ(step.loop.size(), parameters.size() + 3);
}

TEST(RealizeTimeLaw, RotaryTablesAreMadeOnceAndUpdatesRunOnce) {
  const Scheme step = training_step(with_parts(forward_of({"llama-tiny", 4, 2}), 2), {});
  int tables = 0, updates = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op == "rotary_table") {
      ++tables;
      EXPECT_EQ(m.section, Section::kPrologue);
    }
    if (m.op == "adamw" || m.op == "square_sum" || m.op == "gradient_factor") {
      ++updates;
      EXPECT_EQ(m.section, Section::kEpilogue);
    }
  }
  EXPECT_EQ(tables, 1);
  EXPECT_GT(updates, 10);
}

// Activations are those of a part, beside accumulators that live as long as they do.
TEST(RealizeTimeMemory, ActivationsShrinkWithTheParts) {
  const auto activations = [](int parts) {
    const Scheme forward = elaborate_preset("char", {{"batch", 32}});
    const Plan plan = make_plan(training_step(with_parts(forward, parts), {}), {.threads = 2});
    EXPECT_LT(static_cast<double>(plan.arena.count),
              1.02 * static_cast<double>(plan.live_peak.count));
    return static_cast<double>(plan.at_peak()[static_cast<size_t>(Category::kActivations)].count);
  };
  const double whole = activations(1);
  for (const int parts : {2, 4, 8}) {
    EXPECT_NEAR(whole / activations(parts), parts, 0.1 * parts) << parts;
  }
}

// Twice the parts, half the work each.
TEST(RealizeTimeLaw, TheFlopsOfTheBodyCountOncePerPart) {
  const Scheme forward = without_randomness(forward_of({"char", 4, 1}));
  const double whole = flops_by_phase(forward)[0];
  const Scheme split = realize_time(with_parts(forward, 2), "accumulate");
  // Beside the model's own: two additions and one of the index, per part.
  EXPECT_EQ(flops_by_phase(split)[0], whole + 2 * 3);
}

}  // namespace
}  // namespace adjoint
