// What pad_rows gives room to and what it must leave alone; that steps with odd sizes can be
// planned for a GPU, and give on the CPU's kernels what they gave.
#include <gtest/gtest.h>

#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "run/random_steps.h"

namespace adjoint {
namespace {

const StepOptions kOnGpu{.target = Target::kCuda};

constexpr const char* kOdd = R"(scheme:
  input %0 h: f32[b=4, i=16]
  parameter %1 w: f32[v=301, i=16]
  %2 w:bf16: bf16[v=301, i=16] = cast(%1) {dtype="bf16"} @w
  %3 h:bf16: bf16[b=4, i=16] = cast(%0) {dtype="bf16"} @h
  %4 y: bf16[b=4, v=301] = linear(%3, %2) @y
  %5 z: bf16[b=4, v=301] = relu(%4) @z
  return %5
)";

int64_t padded(const Scheme& scheme) {
  int64_t count = 0;
  for (const Object& object : scheme.objects) {
    for (const Axis& axis : object.type.axes) count += axis.padded > 0;
  }
  return count;
}

TEST(PadRows, GivesRoomToWhatProductsReadAndMake) {
  const Scheme scheme = apply_functor("pad_rows", parse_scheme(kOdd), kOnGpu);
  EXPECT_EQ(scheme[2].type.axes[0].padded, 384) << "rows of the table's copy";
  EXPECT_EQ(scheme[4].type.axes[1].padded, 384) << "logits";
  EXPECT_EQ(padded(scheme), 2) << "not the parameter, what leaves the step, or even sizes:\n"
                               << print(scheme);
}

TEST(PadRows, IsForAGpuAloneAndDoneOnce) {
  EXPECT_EQ(applied("pad_rows", kOdd), kOdd);
  const Scheme once = apply_functor("pad_rows", parse_scheme(kOdd), kOnGpu);
  EXPECT_EQ(apply_functor("pad_rows", once, kOnGpu), once);
}

// A concat lays its operands side by side, and refuses padding.
TEST(PadRows, LeavesAloneWhatOthersCannotTake) {
  const Scheme forward =
      elaborate_preset("llama-tiny", {{"batch", 2}, {"seq", 8}, {"hidden", 64}, {"ffn", 301}});
  for (const char* stack :
       {"bf16", "bf16 | -join_projections", "lora(rank=4) | quantize(int8, per=channel)"}) {
    const Scheme step = build_step(forward, parse_stack(stack), kOnGpu).scheme;
    EXPECT_NO_THROW(make_plan(step, {.threads = 1, .target = Target::kCuda})) << stack;
    for (const Morphism& m : step.morphisms) {
      if (m.op != "concat" && m.op != "dequantize") continue;
      for (const Value v : m.inputs) EXPECT_EQ(step[v].type.axes.back().padded, 0) << stack;
      for (const Value v : m.outputs) EXPECT_EQ(step[v].type.axes.back().padded, 0) << stack;
    }
  }
}

// On the CPU's kernels, which go by logical sizes: the same losses, bit for bit or nearly.
TEST(PadRows, ChangesNoLoss) {
  const Scheme forward = elaborate_preset(
      "gpt2",
      {{"batch", 2}, {"seq", 8}, {"layers", 1}, {"hidden", 300}, {"heads", 4}, {"vocab", 301}});
  std::vector<double> losses;
  for (const char* stack : {"bf16", "bf16 | -pad_rows"}) {
    const Scheme step = build_step(forward, parse_stack(stack), kOnGpu).scheme;
    EXPECT_EQ(padded(step) > 0, std::string(stack) == "bf16");
    adjoint::Run run(step, make_plan(step, {.threads = num_threads()}));
    RandomSteps steps(run, 1);
    steps.begin();
    for (int i = 0; i < 2; ++i) {
      steps.feed();
      steps.step();
    }
    losses.push_back(steps.loss());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4 * losses[1]);
}

}  // namespace
}  // namespace adjoint
