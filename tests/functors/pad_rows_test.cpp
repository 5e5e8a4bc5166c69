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

// What leaves the device and comes back is one stretch of bytes, and the products that read it
// have the operands that they have where it stays: the same bits.
TEST(PadRows, WhatMovesKeepsItsRoom) {
  const Scheme forward = elaborate_preset(
      "gpt2",
      {{"batch", 2}, {"seq", 9}, {"layers", 2}, {"hidden", 60}, {"heads", 4}, {"vocab", 301}});
  const std::string stack = "pad_rows(least=16)";
  const Scheme moved =
      build_step(forward, parse_stack(stack + " | offload(activations)"), {}).scheme;
  int moves = 0;
  for (const Morphism& m : moved.morphisms) {
    if (!op_named(m.op).moves) continue;
    EXPECT_EQ(moved[m.inputs[0]].type, moved[m.outputs[0]].type) << to_string(m.source);
    moves += moved[m.inputs[0]].type.axes.back().padded > 0;
  }
  EXPECT_GT(moves, 0);
  std::vector<std::vector<uint64_t>> left;
  for (const Scheme& step : {moved, build_step(forward, parse_stack(stack), {}).scheme}) {
    adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
    RandomSteps steps(run, 1);
    steps.begin();
    for (int i = 0; i < 2; ++i) {
      steps.feed();
      steps.step();
    }
    left.push_back(steps.hashes());
  }
  EXPECT_EQ(left[0], left[1]);
}

// A slice reads the norm in the forward alone, and takes no room: nor has the norm any where it is
// recomputed, or a product of it would have other bits than without checkpoints.
TEST(PadRows, WhatIsRecomputedHasTheRoomOfWhatItRepeats) {
  constexpr const char* kText = R"(axes layers=2 hidden=60 context=8 vocab=37
block x[batch, seq, hidden]:
  n = rms_norm(x)
  x = x + linear(n, hidden, name=a) + pad(slice(n, 0, 8), 0, hidden)
model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab))
  loss = cross_entropy(linear(x, vocab, name=readout), targets)
)";
  const Scheme forward = elaborate_text(kText, {.settings = {{"batch", 2}}});
  const Scheme step =
      build_step(forward, parse_stack("checkpoint(block) | pad_rows(least=16)"), {}).scheme;
  int norms = 0;
  for (const Object& object : step.objects) {
    if (object.source.path != "block[0].rms_norm#1" || object.role == Role::kGradient) continue;
    EXPECT_EQ(object.type.axes.back().padded, 0) << to_string(object.source);
    ++norms;
  }
  EXPECT_EQ(norms, 2) << print(step);
  EXPECT_GT(padded(step), 0);
}

// A result takes the place of an operand where both have the same room.
TEST(PadRows, LogitsThatNoProductMakesHaveTheRoomOfTheirGradient) {
  constexpr const char* kAdded = R"(axes hidden=16 context=8 vocab=301
model tokens[batch, seq], targets[batch, seq]:
  x = rms_norm(embed(tokens, vocab))
  logits = linear(x, vocab, bias=no, name=readout) + param(vocab)
  loss = cross_entropy(logits, targets)
)";
  const Scheme forward = elaborate_text(kAdded, {.settings = {{"batch", 2}}});
  const Scheme step =
      build_step(forward, parse_stack("pad_rows(least=256) | -chunk_readout"), {}).scheme;
  int gradients = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op != "cross_entropy_grad") continue;
    EXPECT_EQ(step[m.inputs[0]].type.axes.back().padded, 384);
    EXPECT_EQ(step[m.outputs[0]].type.axes.back().padded, 384);
    ++gradients;
  }
  EXPECT_EQ(gradients, 1);
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
