// Which sums of gradients an embedding's gradient is added into, as text; and that whole steps stay
// what they were but for the order of a few sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

constexpr const char* kApart = R"(scheme:
  input %0 ids: i32[s=5]
  input %1 dy: bf16[s=5, h=3]
  input %2 x: f32[v=4, h=3]
  %3 e: f32[rows=4, h=3] gradient = embed_grad(%0, %1) {dtype="f32", rows=4} @e backward
  %4 sum: f32[v=4, h=3] gradient = add(%2, %3) @sum backward
  return %4
)";
std::string with(const std::string& what, const std::string& instead) {
  return replaced(kApart, what, instead);
}

TEST(FuseAddend, TheOtherGradientIsAddedTo) {
  const std::string together = R"(scheme:
  input %0 ids: i32[s=5]
  input %1 dy: bf16[s=5, h=3]
  input %2 x: f32[v=4, h=3]
  %3 sum: f32[v=4, h=3] gradient = embed_grad(%0, %1, %2) {dtype="f32", rows=4} @sum backward
  return %3
)";
  EXPECT_EQ(applied("fuse_addend", kApart), together);
  EXPECT_EQ(applied("fuse_addend", with("add(%2, %3)", "add(%3, %2)")), together);
  EXPECT_EQ(applied("fuse_addend", together), together) << "done once";
}

TEST(FuseAddend, LeavesAloneWhatOthersNeed) {
  for (const std::string& text :
       {with("return %4", "return %3, %4"), with("add(%2, %3)", "add(%3, %3)"),
        with("add(%2, %3)", "mul(%2, %3)"), with("@sum backward", "@sum backward epoch=1"),
        replaced(with("input %2 x: f32[v=4, h=3]", "input %2 x: f32[h=3]"), "v=4", "rows=4")}) {
    EXPECT_EQ(applied("fuse_addend", text), text);
  }
}

// One that waited for the sums waits for what they are made of; of two sums one is added to.
TEST(FuseAddend, NobodyWaitsForWhatIsGone) {
  const std::string waiting = applied(
      "fuse_addend",
      with("  return %4", "  %5 z: f32[v=4, h=3] = add(%2, %2) @z after %3\n  return %4, %5"));
  EXPECT_NE(waiting.find("@z after %1"), std::string::npos) << waiting;
  // A second table's sums that waited for the first's: neither waits for what is gone.
  const Scheme chain = apply_functor("fuse_addend", parse_scheme(R"(scheme:
  input %0 ids: i32[s=5]
  input %1 dy: f32[s=5, h=3]
  input %2 x: f32[v=4, h=3]
  %3 e: f32[rows=4, h=3] gradient = embed_grad(%0, %1) {rows=4} @e backward
  %4 f: f32[rows=4, h=3] gradient = embed_grad(%0, %1) {rows=4} @f backward after %3
  %5 sum: f32[v=4, h=3] gradient = add(%2, %3) @sum backward
  %6 more: f32[v=4, h=3] gradient = add(%2, %4) @more backward
  return %5, %6
)"));
  ASSERT_EQ(chain.morphisms.size(), 2u) << print(chain);
  EXPECT_EQ(chain.morphisms[1].after, std::vector<Value>{1}) << print(chain);
  const std::string both = with(
      "  %4 sum: f32[v=4, h=3] gradient = add(%2, %3)",
      "  %4 f: f32[rows=4, h=3] gradient = embed_grad(%0, %1) {dtype=\"f32\", rows=4} @f backward\n"
      "  %5 sum: f32[v=4, h=3] gradient = add(%4, %3)");
  const Scheme sums =
      apply_functor("fuse_addend", parse_scheme(replaced(both, "return %4", "return %5")));
  ASSERT_EQ(sums.morphisms.size(), 2u) << print(sums);
  EXPECT_EQ(sums.morphisms[1].inputs.size(), 3u) << print(sums);
}

TEST(FuseAddend, AddsTheSame) {
  const Scheme apart = parse_scheme(kApart), together = apply_functor("fuse_addend", apart);
  ASSERT_EQ(together.morphisms.size(), 1u);
  const std::vector<Numbers> x = {
      {3, 0, 3, 1, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Numbers(12, 0.5)};
  // Row 2 of the table has no id; row 3 has three.
  const Numbers wanted = {4.5, 5.5, 6.5, 10.5, 11.5, 12.5, 0.5, 0.5, 0.5, 21.5, 24.5, 27.5};
  for (const bool reference : {false, true}) {
    EXPECT_EQ(run_scheme(apart, x, reference)[0], wanted);
    EXPECT_EQ(run_scheme(together, x, reference)[0], wanted);
  }
}

Scheme gpt2_step(const char* stack, Target target) {
  const Scheme model = elaborate_preset(
      "gpt2",
      {{"batch", 2}, {"seq", 8}, {"layers", 1}, {"hidden", 32}, {"heads", 2}, {"vocab", 301}});
  return build_step(model, parse_stack(stack), {.target = target}).scheme;
}

TEST(FuseAddend, FindsATableThatIsReadTwice) {
  const Scheme step = gpt2_step("", Target::kCpu);
  EXPECT_EQ(
      std::count_if(step.morphisms.begin(), step.morphisms.end(),
                    [](const Morphism& m) { return m.op == "embed_grad" && m.inputs.size() == 3; }),
      1);
}

// Both lie in the same bytes: the second table is none.
TEST(FuseAddend, TheSumTakesTheOthersPlace) {
  const Scheme step = gpt2_step("bf16 | chunk_readout(8)", Target::kCuda);
  const Plan plan = make_plan(step, {.target = Target::kCuda});
  int found = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op != "embed_grad" || m.inputs.size() != 3) continue;
    EXPECT_EQ(plan.places[m.inputs[2]].storage, plan.places[m.outputs[0]].storage);
    ++found;
  }
  EXPECT_EQ(found, 1);
}

// A product of 301 rows would run at two thirds of the rate of one of 384.
TEST(FuseAddend, LeavesProductsTheirPadding) {
  for (const char* stack : {"bf16 | chunk_readout(8)", "bf16 | chunk_readout(8) | -fuse_addend"}) {
    int rows = 0;
    const Scheme step = gpt2_step(stack, Target::kCuda);
    for (const Morphism& m : step.morphisms) {
      const Axis& first = step[m.outputs[0]].type.axes.empty()
                              ? Axis{"none", 0}
                              : step[m.outputs[0]].type.axes.front();
      if (m.op != "contract" || first.size != 301) continue;
      EXPECT_EQ(first.physical(), 384) << to_string(m.source) << " of " << stack;
      ++rows;
    }
    EXPECT_EQ(rows, 2) << stack;
  }
}

}  // namespace
}  // namespace adjoint
