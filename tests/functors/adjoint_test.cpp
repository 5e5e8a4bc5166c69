// Reverse mode as text: before and after for schemes small enough to differentiate by hand, and
// what it refuses.
#include <gtest/gtest.h>

#include "base/error.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

TEST(Adjoint, OfALinearMapAndACrossEntropy) {
  EXPECT_EQ(applied("adjoint", R"(scheme tiny:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 w: f32[o=5, i=3]
  parameter %3 bias: f32[o=5]
  %4 y: f32[b=2, o=5] = linear(%0, %2, %3) @y
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2] = cross_entropy(%4, %1) {ignore=-1} @loss
  return %5, %6
)"),
            R"(scheme tiny:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 w: f32[o=5, i=3]
  parameter %3 bias: f32[o=5]
  control %8 scale: f32[] init=ones
  %4 y: f32[b=2, o=5] = linear(%0, %2, %3) @y
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2] = cross_entropy(%4, %1) {ignore=-1} @loss
  %9 y:grad: f32[b=2, o=5] gradient = cross_entropy_grad(%4, %1, %7, %8) {ignore=-1} @loss:grad backward
  %10 bias:grad: f32[o=5] gradient = map(%9) {body="x0/1"} @y:grad backward
  %11 w:grad: f32[o=5, i=3] gradient = contract(%9, %0) {map="ao,ai->oi"} @y:grad backward
  return %5, %6, %11, %10
)");
}

// The weight is frozen: no gradient, no morphism for it, and none for what only leads to it.
TEST(Adjoint, AFrozenParameterCostsNothing) {
  EXPECT_EQ(applied("adjoint", R"(scheme frozen:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 first: f32[h=4, i=3] frozen
  parameter %3 last: f32[o=5, h=4]
  parameter %4 bias: f32[o=5] frozen
  %5 a: f32[b=2, h=4] = linear(%0, %2) @a
  %6 g: f32[b=2, h=4] = gelu(%5) @g
  %7 y: f32[b=2, o=5] = linear(%6, %3, %4) @y
  %8 loss: f32[] metric, %9 loss.count: f32[] metric, %10 loss.lse: f32[b=2] = cross_entropy(%7, %1) {ignore=-1} @loss
  return %8, %9
)"),
            R"(scheme frozen:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 first: f32[h=4, i=3] frozen
  parameter %3 last: f32[o=5, h=4]
  parameter %4 bias: f32[o=5] frozen
  control %11 scale: f32[] init=ones
  %5 a: f32[b=2, h=4] = linear(%0, %2) @a
  %6 g: f32[b=2, h=4] = gelu(%5) @g
  %7 y: f32[b=2, o=5] = linear(%6, %3, %4) @y
  %8 loss: f32[] metric, %9 loss.count: f32[] metric, %10 loss.lse: f32[b=2] = cross_entropy(%7, %1) {ignore=-1} @loss
  %12 y:grad: f32[b=2, o=5] gradient = cross_entropy_grad(%7, %1, %10, %11) {ignore=-1} @loss:grad backward
  %13 last:grad: f32[o=5, h=4] gradient = contract(%12, %6) {map="ao,ai->oi"} @y:grad backward
  return %8, %9, %13
)");
}

// The other way round: the last is frozen, and the gradient must pass through it.
TEST(Adjoint, AFrozenParameterLetsGradientsThrough) {
  EXPECT_EQ(applied("adjoint", R"(scheme through:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 first: f32[h=4, i=3]
  parameter %3 last: f32[o=5, h=4] frozen
  %4 a: f32[b=2, h=4] = linear(%0, %2) @a
  %5 y: f32[b=2, o=5] = linear(%4, %3) @y
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[b=2] = cross_entropy(%5, %1) {ignore=-1} @loss
  return %6, %7
)"),
            R"(scheme through:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 first: f32[h=4, i=3]
  parameter %3 last: f32[o=5, h=4] frozen
  control %9 scale: f32[] init=ones
  %4 a: f32[b=2, h=4] = linear(%0, %2) @a
  %5 y: f32[b=2, o=5] = linear(%4, %3) @y
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[b=2] = cross_entropy(%5, %1) {ignore=-1} @loss
  %10 y:grad: f32[b=2, o=5] gradient = cross_entropy_grad(%5, %1, %8, %9) {ignore=-1} @loss:grad backward
  %11 a:grad: f32[b=2, h=4] gradient = contract(%10, %3) {map="ao,oi->ai"} @y:grad backward
  %12 first:grad: f32[h=4, i=3] gradient = contract(%11, %0) {map="ao,ai->oi"} @a:grad backward
  return %6, %7, %12
)");
}

TEST(Adjoint, ATiedWeightGetsTheSumOfItsTwoParts) {
  EXPECT_EQ(applied("adjoint", R"(scheme tied:
  input %0 t: i32[b=2]
  parameter %1 table: f32[v=5, h=3]
  %2 x: f32[b=2, h=3] = embed(%0, %1) @x
  %3 y: f32[b=2, v=5] = linear(%2, %1) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %0) {ignore=-1} @loss
  return %4, %5
)"),
            R"(scheme tied:
  input %0 t: i32[b=2]
  parameter %1 table: f32[v=5, h=3]
  control %7 scale: f32[] init=ones
  %2 x: f32[b=2, h=3] = embed(%0, %1) @x
  %3 y: f32[b=2, v=5] = linear(%2, %1) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %0) {ignore=-1} @loss
  %8 y:grad: f32[b=2, v=5] gradient = cross_entropy_grad(%3, %0, %6, %7) {ignore=-1} @loss:grad backward
  %9 table:grad.part1: f32[v=5, h=3] gradient = contract(%8, %2) {map="ao,ai->oi"} @y:grad backward
  %10 x:grad: f32[b=2, h=3] gradient = contract(%8, %1) {map="ao,oi->ai"} @y:grad backward
  %11 table:grad.part2: f32[rows=5, h=3] gradient = embed_grad(%0, %10) {rows=5} @x:grad backward
  %12 table:grad: f32[v=5, h=3] gradient = add(%9, %11) @table:grad backward
  return %4, %5, %12
)");
}

// A residual: the gradient of the sum is that of both operands, with nothing to compute.
TEST(Adjoint, AnAdditionPassesItsGradientOn) {
  EXPECT_EQ(applied("adjoint", R"(scheme residual:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 p: f32[b=2, v=5]
  %3 y: f32[b=2, v=5] = add(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %1) {ignore=-1} @loss
  return %4, %5
)"),
            R"(scheme residual:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 p: f32[b=2, v=5]
  control %7 scale: f32[] init=ones
  %3 y: f32[b=2, v=5] = add(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %1) {ignore=-1} @loss
  %8 y:grad: f32[b=2, v=5] gradient = cross_entropy_grad(%3, %1, %6, %7) {ignore=-1} @loss:grad backward
  return %4, %5, %8
)");
}

std::string refusal(std::string_view text) {
  const Scheme before = parse_scheme(text);
  try {
    apply_adjoint(before);
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "the adjoint took what it must refuse";
  return "";
}
#define EXPECT_SAYS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "in: " << (text)

TEST(Adjoint, RefusesAParameterWithoutInfluence) {
  const std::string unread = refusal(R"(scheme unread:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 used: f32[v=5]
  parameter %3 block[3].idle: f32[v=5]
  %4 y: f32[b=2, v=5] = add(%0, %2) @y
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2] = cross_entropy(%4, %1) @loss
  return %5, %6
)");
  EXPECT_SAYS(unread, "block[3].idle");
  const std::string aside = refusal(R"(scheme aside:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 used: f32[v=5]
  parameter %3 aside.weight: f32[v=5]
  %4 y: f32[b=2, v=5] = add(%0, %2) @y
  %5 z: f32[b=2, v=5] = mul(%4, %3) @z
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[b=2] = cross_entropy(%4, %1) @loss
  return %6, %7
)");
  EXPECT_SAYS(aside, "aside.weight");
}

TEST(Adjoint, RefusesToTrainNothing) {
  EXPECT_SAYS(refusal(R"(scheme cold:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 p: f32[v=5] frozen
  %3 y: f32[b=2, v=5] = add(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %1) @loss
  return %4, %5
)"),
              "cold: nothing is trained");
}

TEST(Adjoint, RefusesAModelWithoutALoss) {
  for (const char* outputs : {"%3", "%3, %4", "%4, %3", "%4, %5, %4"}) {
    const std::string said = refusal(std::string(R"(scheme lossless:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 p: f32[v=5]
  %3 y: f32[b=2, v=5] = add(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %1) @loss
  return )") + outputs + "\n");
    EXPECT_SAYS(said, "lossless");
    EXPECT_SAYS(said, "(sum, count)");
  }
}

}  // namespace
}  // namespace adjoint
