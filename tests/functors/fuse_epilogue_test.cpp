// Which functions move into the linear map before them, as text, and that the CPU keeps the bits.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"
#include "kernels/harness.h"

namespace adjoint {
namespace {

TEST(FuseEpilogue, AnElementwiseFunctionMovesIntoTheMap) {
  expect_becomes("fuse_epilogue", R"~(scheme:
  input %0 x: f32[s=3, h=4]
  parameter %1 w: f32[o=6, h=4]
  parameter %2 b: f32[o=6]
  %3 y: f32[s=3, o=6] = linear(%0, %1, %2) @y
  %4 a: f32[s=3, o=6] = tanh(%3) @a
  return %4
)~",
                 {"a = linear_act(x, w, b)"});
  // What the gradient reads too is kept.
  expect_becomes("fuse_epilogue", R"~(scheme:
  input %0 x: f32[s=3, h=4]
  parameter %1 w: f32[o=6, h=4]
  %2 y: f32[s=3, o=6] = linear(%0, %1) @y
  %3 a: f32[s=3, o=6] = tanh(%2) @a
  %4 g: f32[s=3, o=6] gradient = mul(%2, %2) @g backward
  return %3, %4
)~",
                 {"a, y = linear_act(x, w)", "g = mul(y, y)"});
}

TEST(FuseEpilogue, LeavesAloneWhatIsNoFunctionOfOneElement) {
  const auto after = [](const std::string& act, const std::string& object = "") {
    return R"~(scheme:
  input %0 x: f32[s=3, h=4]
  parameter %1 w: f32[o=6, h=4]
  control %2 random: i64[counter=3]
  %3 y: f32[s=3, o=6] = linear(%0, %1) @y
  %4 a: f32[s=3, o=6])~" +
           object + " = " + act + R"~( @a
  return %4
)~";
  };
  for (const std::string& text :
       {after("softmax(%3) {causal=0}"), after("mul(%3, %3)"),
        after("dropout(%3, %2) {key=\"d\", rate=0.5}"), after("map(%3) {body=\"mul(x0, index0)\"}"),
        after("scale(%3) {by=0.0, plus=0.0}"),  // a constant, and no function of the map
        after("tanh(%3)", " recomputed"),       // the function is cheap to repeat, the map is not
        after("tanh(%3)", " precision=\"bf16\"")}) {
    EXPECT_EQ(applied("fuse_epilogue", text), text);
  }
}

TEST(FuseEpilogue, TheCpuKeepsTheBits) {
  const Scheme apart = parse_scheme(R"~(scheme:
  input %0 x: f32[s=67, h=33]
  input %1 w: f32[o=129, h=33]
  input %2 b: f32[o=129]
  %3 y: f32[s=67, o=129] = linear(%0, %1, %2) @y
  %4 a: f32[s=67, o=129] = gelu(%3) @a
  return %4, %3
)~");
  const Scheme fused = apply_functor("fuse_epilogue", apart);
  ASSERT_EQ(fused.morphisms.size(), 1u);
  const Sample sample{.inputs = {apart[0].type, apart[1].type, apart[2].type}};
  const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 5);
  EXPECT_EQ(run_scheme(fused, x, false), run_scheme(apart, x, false));
  EXPECT_EQ(run_scheme(fused, x, true), run_scheme(apart, x, true));
}

}  // namespace
}  // namespace adjoint
