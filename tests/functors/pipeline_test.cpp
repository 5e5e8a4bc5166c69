// The list of functors as a whole: in the order of its phases, each with a name and a law; one
// model gives one step, always the same.
#include "functors/pipeline.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

constexpr const char* kModel = R"(scheme model:
  input %0 tokens: i32[b=2, s=3]
  input %1 targets: i32[b=2, s=3]
  parameter %2 table: f32[v=7, h=4] init=normal(0.02)
  parameter %3 norm.weight: f32[h=4] init=ones
  parameter %4 norm.bias: f32[h=4] init=zeros
  parameter %5 frozen: f32[h=4, h=4] frozen
  %6 x: f32[b=2, s=3, h=4] = embed(%0, %2) @x
  %7 y: f32[b=2, s=3, h=4] = linear(%6, %5) @y
  %8 n: f32[b=2, s=3, h=4] = layer_norm(%7, %3, %4) @n
  %9 logits: f32[b=2, s=3, v=7] = linear(%8, %2) @logits
  %10 loss: f32[] metric, %11 loss.count: f32[] metric, %12 loss.lse: f32[b=2, s=3] = cross_entropy(%9, %1) {ignore=-1} @loss
  return %10, %11
)";

TEST(Pipeline, FunctorsStateWhatTheyMust) {
  std::set<std::string_view> names;
  for (const Functor* functor : all_functors()) {
    EXPECT_FALSE(functor->name.empty());
    EXPECT_TRUE(names.insert(functor->name).second) << functor->name << " is there twice";
    EXPECT_FALSE(functor->summary.empty()) << functor->name;
    ASSERT_NE(functor->rules.empty(), functor->parts.empty()) << functor->name;
    for (const FunctorRule& rule : functor->rules) EXPECT_TRUE(rule.apply) << functor->name;
  }
  EXPECT_FALSE(names.empty());
}

TEST(Pipeline, OneModelGivesOneStep) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double clip : {0.0, 1.0}) {
      const StepOptions options{.optimizer = optimizer, .clip = clip};
      const Scheme model = parse_scheme(kModel);
      const std::string once = print(training_step(model, options));
      EXPECT_EQ(once, print(training_step(model, options)));
      EXPECT_EQ(once, print(training_step(parse_scheme(print(model)), options)));
      EXPECT_EQ(once, print(parse_scheme(once))) << "a step is text like any scheme";
    }
  }
}

// The law of the adjoint and of the optimizer: the forward pass is what it was.
TEST(Pipeline, TheForwardPassIsUnchanged) {
  const Scheme model = parse_scheme(kModel);
  const Scheme step = training_step(model, {.stack = "-fuse | -simplify"});
  ASSERT_GE(step.morphisms.size(), model.morphisms.size());
  for (size_t i = 0; i < model.morphisms.size(); ++i) {
    EXPECT_EQ(step.morphisms[i].op, model.morphisms[i].op);
    EXPECT_EQ(step.morphisms[i].attrs, model.morphisms[i].attrs);
    EXPECT_EQ(step.morphisms[i].source, model.morphisms[i].source);
    EXPECT_EQ(step.morphisms[i].phase, Phase::kForward);
  }
  for (size_t i = model.morphisms.size(); i < step.morphisms.size(); ++i) {
    EXPECT_NE(step.morphisms[i].phase, Phase::kForward) << step.morphisms[i].op;
  }
}

TEST(Pipeline, EveryTrainedParameterIsCarriedAndNoFrozenOne) {
  const Scheme step = training_step(parse_scheme(kModel), {});
  std::set<std::string> carried;
  for (const Carry& c : step.carries) {
    EXPECT_EQ(step[c.in].source, step[c.out].source) << "state keeps its name";
    EXPECT_EQ(step[c.in].role, step[c.out].role);
    EXPECT_TRUE(carried.insert(to_string(step[c.in].source)).second);
  }
  EXPECT_EQ(carried, (std::set<std::string>{"table", "table:adamw.m", "table:adamw.v",
                                            "norm.weight", "norm.weight:adamw.m",
                                            "norm.weight:adamw.v", "norm.bias", "norm.bias:adamw.m",
                                            "norm.bias:adamw.v", "optimizer:adamw.steps"}));
  for (const Value in : step.inputs) {
    if (step[in].role != Role::kState) continue;
    ASSERT_TRUE(step[in].init) << to_string(step[in].source);
    EXPECT_EQ(step[in].init->kind, Init::Kind::kZeros);
  }
}

TEST(Pipeline, OutputsAreLossCountAndNorm) {
  for (const double clip : {0.0, 1.0}) {
    const Scheme step = training_step(parse_scheme(kModel), {.clip = clip});
    ASSERT_EQ(step.outputs.size(), 3u);
    for (const Value out : step.outputs) {
      EXPECT_EQ(step[out].type.rank(), 0);
      EXPECT_EQ(step[out].role, Role::kMetric);
    }
  }
}

TEST(Pipeline, AnUnknownOptimizerIsNamed) {
  try {
    training_step(parse_scheme(kModel), {.optimizer = "adam"});
    FAIL() << "there is no adam";
  } catch (const Error& e) {
    const std::string said = e.what();
    for (const char* part : {"'adam'", "did you mean 'adamw'", "sgd", "momentum"}) {
      EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
    }
  }
}

}  // namespace
}  // namespace adjoint
