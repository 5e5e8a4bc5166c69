// fp16: which objects are narrow, one answer for all updates, and a scale that follows overflow.
#include <gtest/gtest.h>

#include <set>

#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

constexpr const char* kModel = R"(scheme model:
  input %0 ids: i32[n=3]
  input %1 targets: i32[n=3]
  parameter %2 table: f32[v=6, h=4] init=normal(0.5)
  parameter %3 gain: f32[h=4] init=ones
  parameter %4 w: f32[h=4, h=4] init=normal(0.5)
  parameter %5 at: f32[h=4] init=normal(0.5)
  %6 x: f32[n=3, h=4] = embed(%0, %2) @x
  %7 still: f32[h=4] = exp(%5) @still
  %8 z: f32[n=3, h=4] = add(%6, %7) @z
  %9 n: f32[n=3, h=4] = rms_norm(%8, %3) {eps=1e-05} @n
  %10 y: f32[n=3, h=4] = linear(%9, %4) @y
  %11 m: f32[n=3, h=4] = mul(%10, %9) @m
  %12 logits: f32[n=3, v=6] = linear(%11, %2) @logits
  %13 loss: f32[] metric, %14 loss.count: f32[] metric, %15 loss.lse: f32[n=3] = cross_entropy(%12, %1) {ignore=-1} @loss
  return %13, %14
)";

Scheme step_of(const StepOptions& options) { return training_step(parse_scheme(kModel), options); }

TEST(Fp16, NarrowsActivationsAndTheirGradients) {
  // Without the defaults, which fuse and compute again.
  const Scheme plain = apply_optimizer(apply_adjoint(parse_scheme(kModel)), {});
  const Scheme step = realize_precision(apply_functor("fp16", plain));
  std::set<std::string> narrow;
  for (const Object& o : step.objects) {
    if (o.type.dtype == Dtype::kF16) narrow.insert(to_string(o.source));
  }
  // Not: parameters and their gradients, what depends on no data and its gradient, which is a sum
  // over the data, log-sums, numbers.
  EXPECT_EQ(narrow, (std::set<std::string>{"x", "z", "n", "y", "m", "logits", "w:f16", "table:f16",
                                           "logits:grad", "m:grad", "y:grad", "n:grad",
                                           "n:grad.part1", "n:grad.part2", "z:grad"}));
  for (const Carry& c : step.carries) EXPECT_EQ(step[c.in].type.dtype, Dtype::kF32);
}

TEST(Fp16, ScalesTheLossByAState) {
  const Scheme step = step_of({.stack = "fp16"});
  EXPECT_FALSE(step.find({"scale"}));
  const Object& scale = step[*step.find({"loss_scale"})];
  EXPECT_EQ(scale.role, Role::kState);
  EXPECT_EQ(to_string(scale.init.value()), "constant(65536)");
  std::set<std::string> carried;
  for (const Carry& c : step.carries) carried.insert(to_string(step[c.in].source));
  EXPECT_EQ(carried.count("loss_scale") + carried.count("loss_scale:good"), 2u);
}

// Without clipping updates ask about their own gradient alone; not when the loss is scaled.
TEST(Fp16, AllUpdatesAskTheOneNorm) {
  for (const double clip : {0.0, 1.0}) {
    const Scheme step = step_of({.clip = clip, .stack = "fp16 | -gang_updates"});
    const std::vector<int> made_by = producers(step);
    std::set<Value> asked;
    for (const Morphism& m : step.morphisms) {
      if (m.op == "adamw") asked.insert(m.inputs[6]);
    }
    ASSERT_EQ(asked.size(), 1u);
    const Morphism& factor = step.morphisms[made_by[*asked.begin()]];
    EXPECT_EQ(factor.outputs[2], step.outputs[2]) << "the norm that the step returns";
  }
  const Scheme plain = step_of({.clip = 0});
  std::set<Value> asked;
  for (const Morphism& m : plain.morphisms) {
    if (m.op == "adamw") asked.insert(m.inputs[6]);
  }
  EXPECT_EQ(asked.size(), 4u) << "one a parameter, without fp16";
}

TEST(Fp16, EvaluationHasNoScale) {
  const Scheme scheme = evaluation_scheme(parse_scheme(kModel), parse_stack("fp16"), {});
  EXPECT_FALSE(scheme.find({"loss_scale"}));
  EXPECT_EQ(scheme[*scheme.find({"logits"})].type.dtype, Dtype::kF16);
}

TEST(LossScale, HalvesAtOverflowAndDoublesAfterAWindow) {
  const auto next = [](double scale, double good, double norm, double count = 5) {
    const Scheme s = sample_scheme(
        "loss_scale", {.inputs = std::vector<Type>(4, Type{}), .attrs = {{"window", int64_t{3}}}},
        Dtype::kF32);
    const auto out = run_scheme(s, {{scale}, {good}, {norm}, {count}}, false);
    return std::pair{out[0][0], out[1][0]};
  };
  const double top = 0x1p24;
  EXPECT_EQ(next(8, 0, 1.5), (std::pair{8.0, 1.0}));
  EXPECT_EQ(next(8, 1, 1.5), (std::pair{8.0, 2.0}));
  EXPECT_EQ(next(8, 2, 1.5), (std::pair{16.0, 0.0}));
  EXPECT_EQ(next(8, 2, INFINITY), (std::pair{4.0, 0.0}));
  EXPECT_EQ(next(8, 2, NAN), (std::pair{4.0, 0.0}));
  EXPECT_EQ(next(1, 0, INFINITY), (std::pair{1.0, 0.0}));
  EXPECT_EQ(next(top, 2, 0), (std::pair{top, 0.0}));
  EXPECT_EQ(next(8, 2, 0, 0), (std::pair{8.0, 2.0})) << "a step without targets says nothing";
}

// Its gradients are 0 whatever the scale is, so it is no sign that the scale is small enough.
TEST(Fp16, AStepWithoutTargetsIsNoGoodStep) {
  const Scheme step = step_of({.stack = "fp16"});
  adjoint::Run run(step, make_plan(step, {.threads = num_threads()}));
  initialize(run, 3);
  const Value good = *step.find({"loss_scale", "good"});
  run.set_number(*step.find({"rate"}), 0.01);
  const Value scale = *step.find({"loss_scale"});
  run.set_number(scale, 256);  // so that nothing overflows
  const auto good_after = [&](const Numbers& targets) {
    run.set_values(*step.find({"ids"}), {0, 1, 2});
    run.set_values(*step.find({"targets"}), targets);
    run.step();
    return run.number(good);
  };
  EXPECT_EQ(good_after({3, 4, 5}), 1);
  EXPECT_EQ(good_after({-1, -1, -1}), 1);
  EXPECT_EQ(good_after({-1, 4, -1}), 2);
  EXPECT_EQ(run.number(scale), 256);
}

// A step that overflows changes the scale and nothing else, bit for bit; the scale falls until the
// gradients fit, and then training goes on.
TEST(Fp16, AStepThatOverflowsIsSkipped) {
  for (const double clip : {0.0, 1.0}) {
    const Scheme step = step_of({.clip = clip, .stack = "fp16"});
    adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
    initialize(run, 3);
    const Value scale = *step.find({"loss_scale"}), good = *step.find({"loss_scale", "good"});
    EXPECT_EQ(run.number(scale), 65536);
    run.set_number(*step.find({"rate"}), 0.01);
    run.set_number(scale, 0x1p20);
    const auto state = [&] {
      std::map<std::string, Numbers> all;
      for (const Carry& c : step.carries) {
        if (c.in != scale && c.in != good) all[to_string(step[c.in].source)] = run.values(c.in);
      }
      return all;
    };
    const auto before = state();
    double expected = 0x1p20;
    int skipped = 0;
    for (; skipped < 12; ++skipped) {
      run.set_values(*step.find({"ids"}), {0, 1, 2});
      run.set_values(*step.find({"targets"}), {3, 4, 5});
      run.step();
      if (std::isfinite(run.number(step.outputs[2]))) break;
      expected /= 2;
      EXPECT_EQ(run.number(scale), expected);
      EXPECT_EQ(run.number(good), 0);
      EXPECT_EQ(state(), before) << "clip=" << clip << ", step " << skipped;
      EXPECT_TRUE(std::isfinite(run.number(step.outputs[0]))) << "the loss is not scaled";
    }
    EXPECT_GE(skipped, 4) << "2^17 times a gradient above 1/2 is more than float16 holds";
    EXPECT_LT(skipped, 12);
    EXPECT_EQ(run.number(scale), expected);
    EXPECT_EQ(run.number(good), 1);
    EXPECT_EQ(run.number(*step.find({"optimizer", "adamw.steps"})), 1);
    EXPECT_NE(state(), before);
  }
}

}  // namespace
}  // namespace adjoint
