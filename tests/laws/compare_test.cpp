// What a trace remembers, and how two of them are compared.
#include "laws/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "functors/reference.h"
#include "laws/planted.h"
#include "train/bound_model.h"

namespace adjoint {
namespace {

using Kind = TensorKey::Kind;

TEST(Compare, InputsAreBoundByWhatReadsThem) {
  const InputRanges ranges = input_ranges(small_gpt2().forward);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.at("tokens").below, 37);
  EXPECT_FALSE(ranges.at("tokens").ignored);
  EXPECT_EQ(ranges.at("targets").below, 37);
  EXPECT_EQ(ranges.at("targets").ignored, -1);
}

TEST(Compare, ATraceHasEverythingThatMatters) {
  const Subject subject = small_gpt2();
  const Scheme step = training_step(subject.forward, subject.options);
  const InputRanges ranges = input_ranges(subject.forward);
  const Trace trace = trace_run(step, ranges, {.seed = 5, .steps = 2});
  int gradients = 0, parameters = 0;
  for (const Value in : step.inputs) parameters += step[in].role == Role::kParameter;
  for (const auto& [key, numbers] : trace.tensors) {
    gradients += key.kind == Kind::kGradient && key.step == 0;
    for (const double n : numbers) ASSERT_TRUE(std::isfinite(n)) << to_string(key);
  }
  EXPECT_EQ(gradients, parameters) << "every parameter is trained here";
  EXPECT_EQ(static_cast<int>(trace.begin.size()), parameters) << "all state begins as zeros";
  // 48 targets, of which one sample of 8 is ignored, others end early, and a seventh is masked.
  const double count = trace.tensors.at({Kind::kMetric, "count", 0})[0];
  EXPECT_LT(count, 40);
  EXPECT_GT(count, 10);
  // A second run is the same, another seed is not.
  EXPECT_TRUE(bit_differences(trace, trace_run(step, ranges, {.seed = 5, .steps = 2})).empty());
  EXPECT_FALSE(bit_differences(trace, trace_run(step, ranges, {.seed = 6, .steps = 2})).empty());
}

// One tracer for many runs: none sees what an earlier one left behind, not even in float16, whose
// first steps overflow and scale the loss down.
TEST(Compare, EveryTraceBeginsAnew) {
  const Subject subject = small_gpt2();
  const InputRanges ranges = input_ranges(subject.forward);
  for (const char* stack :
       {"", "fp16", "offload(optimizer)", "lora(2) | quantize(int8, per=channel)"}) {
    const Scheme step = build_step(subject.forward, parse_stack(stack), {}).scheme;
    DrawnNumbers drawn;
    Tracer tracer(step, ranges, {}, &drawn);
    tracer.trace({.seed = 6, .steps = 1});
    for (const uint64_t seed : {5, 6}) {
      const Trace again = tracer.trace({.seed = seed}),
                  fresh = trace_run(step, ranges, {.seed = seed});
      EXPECT_EQ(again.begin, fresh.begin) << stack;
      EXPECT_EQ(again.tensors.size(), fresh.tensors.size()) << stack;
      EXPECT_TRUE(bit_differences(again, fresh).empty()) << stack << ", seed " << seed;
    }
  }
}

TEST(Compare, AReferenceReplaysTheRunThatItJudges) {
  const Subject subject = small_gpt2();
  const Scheme step = training_step(subject.forward, subject.options);
  const InputRanges ranges = input_ranges(subject.forward);
  const Trace run = trace_run(step, ranges, {.seed = 5});
  const Trace judge =
      trace_run(to_reference(step), ranges, {.seed = 5, .reference = true, .replayed = &run});
  EXPECT_EQ(judge.begin, run.begin);
  const Errors errors = errors_against(run, judge);
  EXPECT_EQ(errors.size(), run.tensors.size());
  for (const auto& [key, error] : errors) EXPECT_LT(error, 1e-5) << to_string(key);
  // Jitter moves it by about as much as it says.
  const Trace moved =
      trace_run(to_reference(step), ranges,
                {.seed = 5, .reference = true, .replayed = &run, .jitter = 0x1p-10});
  const double distance = errors_against(moved, judge).at({Kind::kGradient, "wte.weight", 0});
  EXPECT_GT(distance, 1e-5);
  EXPECT_LT(distance, 1e-2);
}

// The reference does not repeat a router's choice, but takes the given one.
TEST(Compare, ChoicesAreReplayed) {
  const ModelText text{.file = "experts.scheme",
                       .text =
                           "axes hidden=8 experts=4 context=5 vocab=11\n"
                           "model tokens[batch, seq], targets[batch, seq]:\n"
                           "  x = embed(tokens, vocab, init=normal(1))\n"
                           "  s = linear(x, experts, name=router)\n"
                           "  w = route(s, top_k(s, 2))\n"
                           "  x = merge(split(linear(x, 4*hidden), experts) * split(w, 4))\n"
                           "  loss = cross_entropy(linear(x, vocab), targets)\n"};
  const Scheme forward = BoundModel(text, {.batch = 6}).forward();
  const InputRanges ranges = input_ranges(forward);
  for (const char* stack : {"", "accumulate(4)"}) {
    const Scheme step = build_step(forward, parse_stack(stack), {}).scheme;
    const Scheme judge = to_reference(build_step(forward, parse_stack(""), {}).scheme);
    const Trace run = trace_run(step, ranges, {.steps = 1});
    ASSERT_EQ(run.choices.size(), 1u);
    ASSERT_EQ(run.choices[0].size(), 1u);
    EXPECT_GE(run.choices[0].begin()->second.size(), 6u * 5 * 2);  // and what pads the parts
    const auto loss_given = [&](const Trace& given) {
      const Trace trace =
          trace_run(judge, ranges, {.steps = 1, .reference = true, .replayed = &given});
      return trace.tensors.at({Kind::kMetric, "loss", 0})[0];
    };
    const double loss = run.tensors.at({Kind::kMetric, "loss", 0})[0];
    EXPECT_NEAR(loss_given(run), loss, 1e-5 * loss) << stack;
    Trace other = run;
    for (double& n : other.choices[0].begin()->second) n = 3 - n;
    EXPECT_GT(std::abs(loss_given(other) - loss), 1e-4 * loss) << stack;
  }
}

TEST(Compare, ErrorsAreRelativeAndNoiseIsNone) {
  Trace run, judge;
  const TensorKey large{Kind::kGradient, "w", 0}, tiny{Kind::kGradient, "k.bias", 0},
      only{Kind::kState, "adapter", 1};
  judge.tensors = {{large, {3, 4}}, {tiny, {0, 0}}};
  run.tensors = {{large, {3, 4.05}}, {tiny, {1e-9, 0}}, {only, {1}}};
  const Errors errors = errors_against(run, judge);
  EXPECT_EQ(errors.size(), 2u) << "what only one has is not compared";
  EXPECT_NEAR(errors.at(large), 0.01, 1e-12);
  EXPECT_NEAR(errors.at(tiny), 1e-9 / (5 * 0x1p-12), 1e-12);
  EXPECT_EQ(relative_error({NAN}, {1}), INFINITY);
  EXPECT_EQ(relative_error({1, 2}, {1}), INFINITY);
  EXPECT_EQ(relative_error({NAN, 2}, {INFINITY, 2}), 0) << "both were skipped";
  EXPECT_FALSE(is_finite_somewhere({.tensors = {{{Kind::kMetric, "norm", 0}, {INFINITY}}}}));
  EXPECT_EQ(relative_error({0}, {0}), 0);
}

// What noise does to a parameter and to its moments is noise too; what a real gradient does is not.
TEST(Compare, StateOfANoisyGradientIsMeasuredByAllChanges) {
  Trace run, judge;
  const TensorKey real{Kind::kGradient, "w", 0}, noise{Kind::kGradient, "k.bias", 0},
      weight{Kind::kState, "w", 0}, bias{Kind::kState, "k.bias", 0},
      moment{Kind::kState, "k.bias:adamw.m", 0}, other{Kind::kState, "w:adamw.m", 0};
  judge.begin = {{"w", {1, 1}}, {"k.bias", {0}}};
  judge.tensors = {{real, {3, 4}},  {noise, {1e-12}},  {weight, {1.3, 1.4}},
                   {bias, {1e-13}}, {moment, {1e-14}}, {other, {0.3, 0.4}}};
  run.tensors = judge.tensors;
  run.tensors[bias] = {1e-9}, run.tensors[moment] = {1e-10}, run.tensors[other] = {0.3, 0.41};
  const Errors errors = errors_against(run, judge);
  EXPECT_NEAR(errors.at(bias), 1e-9 / (0.5 * 0x1p-12), 1e-8);     // w moved by 0.5
  EXPECT_NEAR(errors.at(moment), 1e-10 / (0.5 * 0x1p-12), 1e-9);  // its moment has that size too
  EXPECT_NEAR(errors.at(other), 0.02, 1e-12);
}

TEST(Compare, MovedIsOfTheFirstStepAndOfAllGradientsTogether) {
  Trace run, other;
  other.tensors = {{{Kind::kMetric, "loss", 0}, {2}},
                   {{Kind::kMetric, "loss", 1}, {2}},
                   {{Kind::kGradient, "w", 0}, {3, 0}},
                   {{Kind::kGradient, "b", 0}, {4}}};
  run.tensors = {{{Kind::kMetric, "loss", 0}, {2.2}},
                 {{Kind::kMetric, "loss", 1}, {7}},
                 {{Kind::kGradient, "w", 0}, {3, 0.3}},
                 {{Kind::kGradient, "b", 0}, {4.4}},
                 {{Kind::kGradient, "adapter", 0}, {9}}};
  const Moved moved = moved_from(run, other);
  EXPECT_NEAR(moved.loss, 0.1, 1e-12);
  ASSERT_TRUE(moved.gradients);
  EXPECT_NEAR(*moved.gradients, 0.1, 1e-12);  // 0.5 of 5
  other.tensors.erase({Kind::kGradient, "w", 0}), other.tensors.erase({Kind::kGradient, "b", 0});
  EXPECT_FALSE(moved_from(run, other).gradients) << "they have none in common";
}

TEST(Compare, BitsTellZerosApart) {
  EXPECT_FALSE(same_bits({0.0}, {-0.0}));
  EXPECT_TRUE(same_bits({NAN, 1}, {NAN, 1}));
  EXPECT_FALSE(same_bits({1}, {1, 1}));
}

}  // namespace
}  // namespace adjoint
