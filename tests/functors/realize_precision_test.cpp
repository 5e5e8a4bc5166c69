// What precision becomes: dtypes, casts made once, sums that stay float32, codes with scales. As
// text, what must change and what must not.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/phases.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

std::string realized(std::string_view text) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after = realize_precision(before);
  verify(after);
  return print(after);
}

// Activations and their gradients are bf16, multiplied as bf16; parameters, their gradients and
// what a norm multiplies by stay float32; a weight is cast once for forward and backward; casts
// have the attributes of what they are casts of.
TEST(RealizePrecision, OfATrainedLinearMap) {
  EXPECT_EQ(realized(R"(scheme:
  input %0 ids: i32[n=2, s=3]
  parameter %1 table: f32[v=7, h=4] init=normal(0.02)
  parameter %2 w: f32[o=5, h=4] init=normal(0.02) stage=1
  parameter %3 b: f32[o=5] init=zeros
  parameter %4 gain: f32[h=4] init=ones
  %5 x: f32[n=2, s=3, h=4] precision="bf16" kept = embed(%0, %1) @x
  %6 n: f32[n=2, s=3, h=4] precision="bf16" recomputed = rms_norm(%5, %4) {eps=1e-05} @n
  %7 y: f32[n=2, s=3, o=5] precision="bf16" = linear(%6, %2, %3) @y
  %8 n:grad: f32[n=2, s=3, h=4] gradient precision="bf16" = contract(%7, %2) {map="abo,oi->abi"} @y:grad backward
  %9 w:grad: f32[o=5, h=4] gradient = contract(%7, %6) {map="abo,abi->oi"} @y:grad backward
  %10 b:grad: f32[o=5] gradient = map(%7) {body="x0/2"} @y:grad backward
  %11 table:grad: f32[rows=7, h=4] gradient = embed_grad(%0, %8) {rows=7} @x:grad backward
  %12 squares: f32[] metric = square_sum(%11) @squares update
  return %9, %10, %12
)"),
            R"(scheme:
  input %0 ids: i32[n=2, s=3]
  parameter %1 table: f32[v=7, h=4] init=normal(0.02)
  parameter %2 w: f32[o=5, h=4] init=normal(0.02) stage=1
  parameter %3 b: f32[o=5] init=zeros
  parameter %4 gain: f32[h=4] init=ones
  %13 x:f32: f32[n=2, s=3, h=4] kept = embed(%0, %1) @x
  %5 x: bf16[n=2, s=3, h=4] kept = cast(%13) {dtype="bf16"} @x
  %6 n: bf16[n=2, s=3, h=4] recomputed = rms_norm(%5, %4) {eps=1e-05} @n
  %14 w:bf16: bf16[o=5, h=4] parameter stage=1 = cast(%2) {dtype="bf16"} @w:bf16
  %15 b:bf16: bf16[o=5] parameter = cast(%3) {dtype="bf16"} @b:bf16
  %7 y: bf16[n=2, s=3, o=5] = linear(%6, %14, %15) @y
  %8 n:grad: bf16[n=2, s=3, h=4] gradient = contract(%7, %14) {map="abo,oi->abi"} @y:grad backward
  %9 w:grad: f32[o=5, h=4] gradient = contract(%7, %6) {dtype="f32", map="abo,abi->oi"} @y:grad backward
  %10 b:grad: f32[o=5] gradient = map(%7) {body="x0/2/f32"} @y:grad backward
  %11 table:grad: f32[rows=7, h=4] gradient = embed_grad(%0, %8) {dtype="f32", rows=7} @x:grad backward
  %12 squares: f32[] metric = square_sum(%11) @squares update
  return %9, %10, %12
)");
}

// The log-sums that attention keeps are float32 whatever it multiplies, and are not cast either. A
// body whose operand has another dtype stores what is wanted at once.
TEST(RealizePrecision, LeavesWhatAnOpFixes) {
  // Whether somebody spoke of the log-sums or not.
  for (const std::string said : {"", " precision=\"f16\"", " precision=\"bf16\""}) {
    EXPECT_EQ(realized(R"(scheme:
  input %0 x: f32[b=2, s=3, w=12]
  %1 qkv: f32[b=2, s=3, w=12] precision="f16" = exp(%0) @qkv
  %2 a: f32[b=2, s=3, w=4] precision="f16", %3 a.lse: f32[b=2, k=2, g=1, s=3])" +
                       said + R"( = attention(%1) {heads=2} @a
  %4 qkv:grad: f32[b=2, s=3, w=12] gradient precision="f16" = attention_grad(%1, %2, %3, %2) {heads=2} @a:grad backward
  return %4
)"),
              R"(scheme:
  input %0 x: f32[b=2, s=3, w=12]
  %1 qkv: f16[b=2, s=3, w=12] = map(%0) {body="exp(x0)/f16"} @qkv
  %2 a: f16[b=2, s=3, w=4], %3 a.lse: f32[b=2, k=2, g=1, s=3] = attention(%1) {heads=2} @a
  %4 qkv:grad: f16[b=2, s=3, w=12] gradient = attention_grad(%1, %2, %3, %2) {heads=2} @a:grad backward
  return %4
)");
  }
  const auto loss = [](const std::string& said) {
    return R"(scheme:
  input %0 y: f32[s=3, v=5]
  input %1 t: i32[s=3]
  %2 one: f32[] gradient = fill() {shape=[], value=1} @one
  %3 loss: f32[] metric)" +
           said + ", %4 loss.count: f32[] metric" + said + ", %5 loss.lse: f32[s=3]" + said +
           R"( = cross_entropy(%0, %1) {ignore=-1} @loss
  %6 y:grad: f32[s=3, v=5] gradient = cross_entropy_grad(%0, %1, %5, %2) {ignore=-1} @loss:grad backward
  return %3, %4, %6
)";
  };
  EXPECT_EQ(realized(loss(" precision=\"bf16\"")), loss(""));
}

// Objects of which nothing was said are as typed, so what makes them reads float32; the log-sums of
// a float32 attention are not cast for a gradient in bf16.
TEST(RealizePrecision, CastsForReadersThatStayWide) {
  EXPECT_EQ(realized(R"(scheme:
  input %0 x: f32[b=2, s=3, w=12]
  parameter %1 w: f32[w=12, w=12]
  %2 qkv: f32[b=2, s=3, w=12] precision="bf16" = linear(%0, %1) @qkv
  %3 a: f32[b=2, s=3, w=4], %4 a.lse: f32[b=2, k=2, g=1, s=3] = attention(%2) {heads=2} @a
  %5 qkv:grad: f32[b=2, s=3, w=12] gradient precision="bf16" = attention_grad(%2, %3, %4, %3) {heads=2} @a:grad backward
  %6 s: f32[b=2, s=3, p=1, w=12] = split(%2) {parts=1} @s
  %7 both: f32[b=2, s=3, w=12] = add(%5, %2) @both
  return %6, %7
)"),
            R"(scheme:
  input %0 x: f32[b=2, s=3, w=12]
  parameter %1 w: f32[w=12, w=12]
  %8 x:bf16: bf16[b=2, s=3, w=12] input = cast(%0) {dtype="bf16"} @x:bf16
  %9 w:bf16: bf16[w=12, w=12] parameter = cast(%1) {dtype="bf16"} @w:bf16
  %2 qkv: bf16[b=2, s=3, w=12] = linear(%8, %9) @qkv
  %10 qkv:f32: f32[b=2, s=3, w=12] = cast(%2) {dtype="f32"} @qkv:f32
  %3 a: f32[b=2, s=3, w=4], %4 a.lse: f32[b=2, k=2, g=1, s=3] = attention(%10) {heads=2} @a
  %11 a:bf16: bf16[b=2, s=3, w=4] = cast(%3) {dtype="bf16"} @a:bf16 backward
  %5 qkv:grad: bf16[b=2, s=3, w=12] gradient = attention_grad(%2, %11, %4, %11) {heads=2} @a:grad backward
  %12 s:bf16: bf16[b=2, s=3, p=1, w=12] = split(%2) {parts=1} @s
  %6 s: f32[b=2, s=3, p=1, w=12] = cast(%12) {dtype="f32"} @s
  %7 both: f32[b=2, s=3, w=12] = map(%5, %2) {body="add(x0, x1)/f32"} @both
  return %6, %7
)");
}

TEST(RealizePrecision, OfTf32IsHowAProductIsMade) {
  EXPECT_EQ(realized(R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: f32[o=2, h=4]
  %2 y: f32[n=3, o=2] precision="tf32" = linear(%0, %1) @y
  %3 z: f32[n=3, o=2] precision="tf32" = exp(%2) @z
  %4 g: f32[o=2, h=4] gradient = contract(%3, %0) {map="no,nh->oh"} @y:grad backward
  return %4
)"),
            R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: f32[o=2, h=4]
  %2 y: f32[n=3, o=2] = linear(%0, %1) {math="tf32"} @y
  %3 z: f32[n=3, o=2] = exp(%2) @z
  %4 g: f32[o=2, h=4] gradient = contract(%3, %0) {map="no,nh->oh"} @y:grad backward
  return %4
)");
}

// Dequantized once a phase: forward's copy must not live until backward.
TEST(RealizePrecision, OfAFrozenMatrixIsCodesAndScales) {
  EXPECT_EQ(realized(R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: f32[o=2, h=4] frozen init=normal(0.02) precision="nf4/2" host
  parameter %2 v: f32[h=4, o=2] frozen init=ones precision="int8/channel"
  %3 y: f32[n=3, o=2] precision="bf16" = linear(%0, %1) @y
  %4 z: f32[n=3, h=4] = linear(%3, %2) @z
  %5 z2: f32[n=3, h=4] = linear(%3, %2) @z2
  %6 x:grad: f32[n=3, h=4] gradient = contract(%3, %1) {map="no,oi->ni"} @y:grad backward
  return %4, %5, %6
)"),
            R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %5 w:codes: u8[o=2, h=2] frozen init=normal(0.02) host
  parameter %6 w:scales: f32[o=2, groups=2] frozen init=normal(0.02) host
  parameter %7 v:codes: i8[h=4, o=2] frozen init=ones
  parameter %8 v:scales: f32[h=4] frozen init=ones
  %9 x:bf16: bf16[n=3, h=4] input = cast(%0) {dtype="bf16"} @x:bf16
  %10 w:bf16: bf16[o=2, h=4] parameter frozen recomputed host = dequantize(%5, %6) {dtype="bf16", format="nf4"} @w:bf16
  %1 y: bf16[n=3, o=2] = linear(%9, %10) @y
  %11 y:f32: f32[n=3, o=2] = cast(%1) {dtype="f32"} @y:f32
  %12 v:f32: f32[h=4, o=2] parameter frozen recomputed = dequantize(%7, %8) {dtype="f32", format="int8"} @v:f32
  %2 z: f32[n=3, h=4] = linear(%11, %12) @z
  %3 z2: f32[n=3, h=4] = linear(%11, %12) @z2
  %13 w:bf16.backward: bf16[o=2, h=4] parameter frozen recomputed host = dequantize(%5, %6) {dtype="bf16", format="nf4"} @w:bf16.backward backward
  %4 x:grad: f32[n=3, h=4] gradient = contract(%1, %13) {dtype="f32", map="no,oi->ni"} @y:grad backward
  return %2, %3, %4
)");
}

TEST(RealizePrecision, ChangesNothingOfWhichNothingWasSaid) {
  const std::string text = R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: bf16[o=2, h=4]
  %3 low: bf16[n=3, h=4] = cast(%0) {dtype="bf16"} @low
  %2 y: bf16[n=3, o=2] = linear(%3, %1) @y
  return %2
)";
  EXPECT_EQ(realized(text), text);
}

TEST(RealizePrecision, IsDoneOnce) {
  const std::string once = realized(R"(scheme:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: f32[o=2, h=4]
  %2 y: f32[n=3, o=2] precision="bf16" = linear(%0, %1) @y
  return %2
)");
  EXPECT_EQ(realized(once), once);
}

TEST(RealizePrecision, RefusesWhatCannotBe) {
  const auto complaint = [](const std::string& parameter, const std::string& made) {
    return error_text([&] {
      realized("scheme:\n  input %0 x: f32[n=3, h=4]\n  parameter %1 w: f32[o=2, h=4]" + parameter +
               "\n  %2 y: f32[n=3, o=2]" + made +
               " = linear(%0, %1) @y\n  %3 w: f32[o=2, h=4] parameter = exp(%1) @w update\n"
               "  carry %1 -> %3\n  return %2\n");
    });
  };
  EXPECT_EQ(complaint("", ""), "");
  EXPECT_EQ(complaint(" precision=\"int8/channel\"", ""),
            "precision: 'w' cannot be int8/channel: only a frozen parameter can be codes, and this "
            "one is trained");
  EXPECT_EQ(complaint(" precision=\"bf16\"", ""),
            "precision: 'w' cannot be bf16: it is carried on, and state keeps its type");
  EXPECT_EQ(complaint(" precision=\"fp8\"", ""),
            "precision: 'w' cannot be fp8: wanted bf16, f16, f32, tf32, int8/tensor, int8/channel, "
            "int8/64, int4/64 or nf4/64");
  EXPECT_EQ(complaint("", " precision=\"nf4/64\""),
            "precision: 'y' cannot be nf4/64: it is computed, and only a parameter can be codes");
}

}  // namespace
}  // namespace adjoint
