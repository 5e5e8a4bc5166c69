// What fuse_loss joins and what it must leave alone, as text; what it makes of whole steps, whose
// bits and bytes stay what they were.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "functors/functor_named.h"
#include "functors/left_behind.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

const StepOptions kOnGpu{.target = Target::kCuda};

constexpr const char* kApart = R"(scheme:
  input %0 h: f32[b=2, s=4, i=3]
  input %1 t: i32[b=2, s=4]
  input %2 u: i32[b=2, s=4]
  parameter %3 w: f32[v=5, i=3]
  control %4 scale: f32[]
  %5 half: f32[] = mul(%4, %4) @half
  %6 y: f32[b=2, s=4, v=5] = linear(%0, %3) @y
  %7 loss: f32[] metric, %8 loss.count: f32[] metric, %9 loss.lse: f32[b=2, s=4] = cross_entropy(%6, %1) {ignore=-1} @loss
  %10 seen: f32[] = mul(%7, %8) @seen
  %11 y:grad: f32[b=2, s=4, v=5] gradient = cross_entropy_grad(%6, %1, %9, %5) {ignore=-1} @loss:grad backward
  %12 h:grad: f32[b=2, s=4, i=3] gradient = contract(%11, %3) {map="abo,oi->abi"} @y:grad backward
  return %10, %8, %12
)";

std::string with(const std::string& what, const std::string& instead) {
  return replaced(kApart, what, instead);
}

void expect_left_alone(const std::string& text) {
  EXPECT_EQ(applied("fuse_loss", text, kOnGpu), text);
}

constexpr const char* kTogether = R"(scheme:
  input %0 h: f32[b=2, s=4, i=3]
  input %1 t: i32[b=2, s=4]
  input %2 u: i32[b=2, s=4]
  parameter %3 w: f32[v=5, i=3]
  control %4 scale: f32[]
  %5 half: f32[] = mul(%4, %4) @half
  %6 y: f32[b=2, s=4, v=5] = linear(%0, %3) @y
  %7 loss: f32[] metric, %8 loss.count: f32[] metric, %10 y:grad: f32[b=2, s=4, v=5] gradient = cross_entropy_with_grad(%6, %1, %5) {ignore=-1} @loss:grad backward
  %9 seen: f32[] = mul(%7, %8) @seen
  %11 h:grad: f32[b=2, s=4, i=3] gradient = contract(%10, %3) {map="abo,oi->abi"} @y:grad backward
  return %9, %8, %11
)";

TEST(FuseLoss, LossAndGradientAreOne) {
  EXPECT_EQ(applied("fuse_loss", kApart, kOnGpu), kTogether);
  EXPECT_EQ(applied("fuse_loss", kTogether, kOnGpu), kTogether) << "done once";
}

TEST(FuseLoss, OptionsGoAlong) {
  const std::string options = "{cap=30, ignore=-1, smoothing=0.125, z=0.5}";
  std::string text = with("%1) {ignore=-1}", "%1) " + options);
  text = replaced(text, "%5) {ignore=-1}", "%5) " + options);
  EXPECT_EQ(applied("fuse_loss", text, kOnGpu), replaced(kTogether, "{ignore=-1}", options));
}

TEST(FuseLoss, AScaleThatIsAnInputIsThereBefore) {
  const std::string made = applied("fuse_loss", with("%9, %5) {", "%9, %4) {"), kOnGpu);
  EXPECT_NE(made.find("cross_entropy_with_grad(%6, %1, %4)"), std::string::npos) << made;
}

// Both wait for what either waited for, and who waited for the log-sums still waits.
TEST(FuseLoss, WhoWaitsGoesOnWaiting) {
  std::string text = with("@loss:grad backward", "@loss:grad backward after %5");
  text = replaced(text, "@loss\n", "@loss after %5\n");
  text = replaced(text, "@y:grad backward", "@y:grad backward after %9");
  std::string want = replaced(kTogether, "@loss:grad backward", "@loss:grad backward after %5");
  want = replaced(want, "@y:grad backward", "@y:grad backward after %7");
  EXPECT_EQ(applied("fuse_loss", text, kOnGpu), want);
}

TEST(FuseLoss, ACpuReadsNoLess) { EXPECT_EQ(applied("fuse_loss", kApart), kApart); }

TEST(FuseLoss, LeavesAloneWhatDoesNotFit) {
  for (const std::string& text : {
           with("%9, %5) {", "%9, %8) {"),                        // the scale is the loss's count
           with("%9, %5) {", "%9, %10) {"),                       // or is made later than the loss
           with("backward\n  %12", "backward after %10\n  %12"),  // or something else is
           with("return %10", "return %6, %10"),                  // logits are wanted
           with("return %10", "return %9, %10"),                  // log-sums are
           with("grad(%6, %1,", "grad(%6, %2,"),                  // other targets
           with("%5) {ignore=-1}", "%5) {ignore=0}"),             // another target is ignored
           with("%5) {ignore=-1}", "%5) {cap=30, ignore=-1}"),    // a gradient of another loss
           with("%1) {ignore=-1}", "%1) {ignore=-1, z=0.5}"),
           with("@loss:grad backward", "@loss:grad backward epoch=1"),
       }) {
    expect_left_alone(text);
  }
  // A loss before the parts of a batch is no part's loss.
  std::string text = with("@half\n", "@half prologue\n");
  for (const char* at : {"@y\n", "@loss\n"}) {
    text = replaced(text, at, std::string(at, strlen(at) - 1) + " prologue\n");
  }
  expect_left_alone(text);
}

TEST(FuseLoss, LogitsThatOthersReadStayAsTheyAre) {
  std::string text = with("  return %10, %8, %12",
                          "  %13 twice: f32[b=2, s=4, v=5] = add(%6, %6) @twice\n"
                          "  return %10, %8, %12, %13");
  expect_left_alone(text);
  text = with("  return %10, %8, %12",
              "  %13 again: f32[b=2, s=4, v=5] gradient = cross_entropy_grad(%6, %1, %9, %4) "
              "{ignore=-1} @again:grad backward\n"
              "  return %10, %8, %12, %13");
  expect_left_alone(text);
}

Scheme small_gpt2() {
  return elaborate_preset(
      "gpt2",
      {{"batch", 4}, {"seq", 16}, {"layers", 2}, {"hidden", 32}, {"heads", 2}, {"vocab", 301}});
}

int calls_of(const Scheme& scheme, std::string_view op) {
  return static_cast<int>(std::count_if(scheme.morphisms.begin(), scheme.morphisms.end(),
                                        [&](const Morphism& m) { return m.op == op; }));
}

struct Case {
  const char* stack;
  int losses;
};
constexpr Case kSteps[] = {{"bf16", 1},
                           {"bf16 | chunk_readout(rows=16)", 4},
                           {"fp16 | chunk_readout(rows=16)", 4},
                           {"accumulate(2)", 1},
                           {"accumulate(2) | chunk_readout(rows=16)", 2},
                           {"checkpoint(every=1) | chunk_readout(rows=32)", 2}};

Scheme step_of(const std::string& stack) {
  return build_step(small_gpt2(), parse_stack(stack), kOnGpu).scheme;
}

TEST(FuseLoss, FindsTheLossOfEveryStep) {
  for (const auto& [stack, losses] : kSteps) {
    const Scheme step = step_of(stack);
    EXPECT_EQ(calls_of(step, "cross_entropy_with_grad"), losses) << stack << "\n" << print(step);
    EXPECT_EQ(calls_of(step, "cross_entropy"), 0) << stack;
    EXPECT_EQ(calls_of(step, "cross_entropy_grad"), 0) << stack;
  }
  const Scheme evaluated = evaluation_scheme(small_gpt2(), parse_stack(""), kOnGpu);
  EXPECT_EQ(calls_of(evaluated, "cross_entropy"), 1) << "an evaluation has no gradient";
}

// On the CPU's kernels; what the GPU's give is held in tests/gpu/cross_entropy_gpu_test.cpp.
TEST(FuseLoss, NoBitChanges) {
  for (const auto& [stack, losses] : kSteps) {
    EXPECT_EQ(left_behind(step_of(stack)),
              left_behind(step_of(stack + std::string(" | -fuse_loss"))))
        << stack;
  }
}

TEST(FuseLoss, NoMoreBytesLiveAtOnce) {
  for (const auto& [stack, losses] : kSteps) {
    const auto live = [&](const std::string& text) {
      return make_plan(step_of(text), {}).arena_of(Tier::kDevice).live_peak.count;
    };
    EXPECT_LE(live(stack), live(stack + std::string(" | -fuse_loss"))) << stack;
  }
}

}  // namespace
}  // namespace adjoint
