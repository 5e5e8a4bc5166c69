// Reverse mode as text: before and after for schemes small enough to differentiate by hand, and
// what it refuses.
#include <gtest/gtest.h>

#include "base/error.h"
#include "functors/becomes.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

TEST(Adjoint, OfALinearMapAndACrossEntropy) {
  expect_calls("adjoint", R"(scheme tiny:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 w: f32[o=5, i=3]
  parameter %3 bias: f32[o=5]
  %4 y: f32[b=2, o=5] = linear(%0, %2, %3) @y
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2] = cross_entropy(%4, %1) {ignore=-1} @loss
  return %5, %6
)",
               {"y = linear(x, w, bias)", "loss, loss.count, loss.lse = cross_entropy(y, t)",
                "y:grad = cross_entropy_grad(y, t, loss.lse, scale)", "bias:grad = map(y:grad)",
                "w:grad = contract(y:grad, x)"});
}

// The weight is frozen: no gradient, no morphism for it, and none for what only leads to it.
TEST(Adjoint, AFrozenParameterCostsNothing) {
  expect_calls(
      "adjoint", R"(scheme frozen:
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
)",
      {"a = linear(x, first)", "g = gelu(a)", "y = linear(g, last, bias)",
       "loss, loss.count, loss.lse = cross_entropy(y, t)",
       "y:grad = cross_entropy_grad(y, t, loss.lse, scale)", "last:grad = contract(y:grad, g)"});
}

// The other way round: the last is frozen, and the gradient must pass through it.
TEST(Adjoint, AFrozenParameterLetsGradientsThrough) {
  expect_calls("adjoint", R"(scheme through:
  input %0 x: f32[b=2, i=3]
  input %1 t: i32[b=2]
  parameter %2 first: f32[h=4, i=3]
  parameter %3 last: f32[o=5, h=4] frozen
  %4 a: f32[b=2, h=4] = linear(%0, %2) @a
  %5 y: f32[b=2, o=5] = linear(%4, %3) @y
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[b=2] = cross_entropy(%5, %1) {ignore=-1} @loss
  return %6, %7
)",
               {"a = linear(x, first)", "y = linear(a, last)",
                "loss, loss.count, loss.lse = cross_entropy(y, t)",
                "y:grad = cross_entropy_grad(y, t, loss.lse, scale)",
                "a:grad = contract(y:grad, last)", "first:grad = contract(a:grad, x)"});
}

TEST(Adjoint, ATiedWeightGetsTheSumOfItsTwoParts) {
  expect_calls("adjoint", R"(scheme tied:
  input %0 t: i32[b=2]
  parameter %1 table: f32[v=5, h=3]
  %2 x: f32[b=2, h=3] = embed(%0, %1) @x
  %3 y: f32[b=2, v=5] = linear(%2, %1) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %0) {ignore=-1} @loss
  return %4, %5
)",
               {"x = embed(t, table)", "y = linear(x, table)",
                "loss, loss.count, loss.lse = cross_entropy(y, t)",
                "y:grad = cross_entropy_grad(y, t, loss.lse, scale)",
                "table:grad.part1 = contract(y:grad, x)", "x:grad = contract(y:grad, table)",
                "table:grad.part2 = embed_grad(t, x:grad)",
                "table:grad = add(table:grad.part1, table:grad.part2)"});
}

// A residual: the gradient of the sum is that of both operands, with nothing to compute.
TEST(Adjoint, AnAdditionPassesItsGradientOn) {
  expect_calls("adjoint", R"(scheme residual:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  parameter %2 p: f32[b=2, v=5]
  %3 y: f32[b=2, v=5] = add(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2] = cross_entropy(%3, %1) {ignore=-1} @loss
  return %4, %5
)",
               {"y = add(x, p)", "loss, loss.count, loss.lse = cross_entropy(y, t)",
                "y:grad = cross_entropy_grad(y, t, loss.lse, scale)"});
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
