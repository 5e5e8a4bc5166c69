// How parameters are trained, as rules say it: which parameters get which rate, decay, optimizer
// and group, and what is refused. What the optimizer makes of it is in optimizer_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error_text.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"

namespace adjoint {
namespace {

Scheme step_of(const Scheme& forward, const std::string& lines, const std::string& rest = "") {
  return build_step(forward, with_rules(lines, rest), {}).scheme;
}

// What is said of the training of each parameter, where anything is.
std::map<std::string, Training> trainings(const Scheme& scheme) {
  std::map<std::string, Training> all;
  for (const Value in : scheme.inputs) {
    const Training& t = scheme[in].attributes.training;
    if (t == Training{}) continue;
    EXPECT_EQ(scheme[in].role, Role::kParameter);
    all[scheme[in].source.path] = t;
  }
  return all;
}

TEST(Training, ByRole) {
  const Scheme step = step_of(
      small_llama(), "  object parameter of embedding -> rate 0.1 and decay 0 and optimizer sgd");
  const auto said = trainings(step);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said.at("wte.weight"), (Training{.rate = 0.1, .decay = 0.0, .optimizer = "sgd"}));
  EXPECT_FALSE(step.find({"wte.weight", "adamw.m"}));
  EXPECT_EQ(print(parse_scheme(print(step))), print(step));
}

// Layer-wise rate decay: the deeper a block, the nearer to the run's rate.
TEST(Training, ByBlock) {
  const auto said =
      trainings(step_of(small_gpt2(),
                        "  object parameter inside chain -> rate pow(0.5, L - l)\n"
                        "  object parameter of embedding, not of readout -> rate pow(0.5, L + 1)"));
  for (int l = 0; l < 4; ++l) {
    const std::string block = "block[" + std::to_string(l) + "].";
    EXPECT_EQ(said.at(block + "qkv.weight").rate, std::pow(0.5, 4 - l));
    EXPECT_EQ(said.at(block + "layer_norm#2.bias").rate, std::pow(0.5, 4 - l));
  }
  EXPECT_EQ(said.at("wpe.weight").rate, std::pow(0.5, 5));
  EXPECT_FALSE(said.count("wte.weight")) << "a tied table is the readout's too";
  EXPECT_FALSE(said.count("layer_norm#1.weight")) << "nothing is said of it";
}

TEST(Training, OfWhatTheFunctorMade) {
  const std::string lines =
      "  morphism y = linear(x, W) where attention\n"
      "    -> y + linear(linear(x, 2, bias=no, name=down), width(y), bias=no, name=up, "
      "init=zeros)\n"
      "  object parameter not made here -> frozen\n"
      "  object parameter made here as up -> rate 16\n"
      "  object parameter made here -> decay 0";
  const auto said = trainings(step_of(small_llama(), lines));
  EXPECT_EQ(said.size(), 2 * 16u);
  EXPECT_EQ(said.at("block[0].q.up.weight"), (Training{.rate = 16.0, .decay = 0.0}));
  EXPECT_EQ(said.at("block[3].o.down.weight"), (Training{.decay = 0.0}));
  EXPECT_FALSE(said.count("block[0].up.weight")) << "the model's own up was not made here";
}

// A rule sweeps over what is frozen, wherever the other functor stands, and finds only that in
// vain.
TEST(Training, WhatIsFrozenHasNoRate) {
  const auto said =
      trainings(step_of(small_llama(), "  object parameter -> decay 0", "freeze(norm)"));
  EXPECT_EQ(said.size(), 39u - 9u);
  EXPECT_EQ(error_text([&] {
              step_of(small_llama(), "  object parameter of norm -> rate 2", "freeze(norm)");
            }),
            "f.functor:3:3: only a trained parameter can have 'rate 2', and "
            "'block[0].rms_norm#1.weight' is frozen");
  EXPECT_EQ(error_text([&] { step_of(small_llama(), "  object activation -> decay 0"); }),
            "f.functor:3:3: only a trained parameter can have 'decay 0', and 'wte' is activation");
}

TEST(Training, RefusesWhatIsNoRate) {
  EXPECT_EQ(error_text([&] { step_of(small_llama(), "  object parameter -> rate 1 - 2"); }),
            "f.functor:3:23: wanted a rate of at least 0, found 1 - 2 = -1");
  EXPECT_TRUE(has(error_text([&] { step_of(small_llama(), "  object parameter -> decay 1/0"); }),
                  "f.functor:3:29: 1/0 is inf"));
  const std::string tied =
      error_text([&] { step_of(small_gpt2(), "  object parameter of embedding -> rate 0.1"); });
  EXPECT_TRUE(has(tied, "f: 'wte.weight' is tied: ")) << tied;
  EXPECT_TRUE(has(tied, "name all of its uses (embedding, readout), or what it is (matrix)"))
      << tied;
  const Functor other = parse_functor(
      "functor g:\n  law approximating\n  object parameter of norm -> rate 3\n", "g.functor");
  Stack both = with_rules("  object vector -> rate 2");
  both.functors.insert(both.functors.begin(), {other, Arguments("g", {}, Term{}), false});
  const std::string said = error_text([&] { build_step(small_llama(), both, {}); });
  EXPECT_TRUE(has(said, "f: says rate 2 of 'block[0].rms_norm#1.weight', and g says 3")) << said;
}

// A tied table by all of its uses; a rule that names one that it has not finds it as little as one
// that names too few.
TEST(Training, ATiedParameterByAllOfItsUses) {
  const auto said =
      trainings(step_of(small_gpt2(), "  object trained, of embedding, of readout -> decay 0"));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said.at("wte.weight"), (Training{.decay = 0.0}));
  EXPECT_TRUE(has(error_text([&] {
                    step_of(small_llama(), "  object trained, of embedding, of readout -> decay 0");
                  }),
                  "f: matches nothing"));
}

// A functor of several rules acts where one of them finds something; the others are told of.
TEST(Training, RulesThatFindNothingAreToldOf) {
  using Lines = std::vector<std::string>;
  const auto idle = [](const std::string& lines) {
    return build_step(small_gpt2(), with_rules(lines), {}).applied.at(0).idle_rules;
  };
  EXPECT_EQ(idle("  object trained, vector -> decay 0\n  object trained, of router -> rate 2"),
            (Lines{"f.functor:4: this rule finds nothing here"}));
  // Once, although it is asked what is frozen, how parameters are trained, and the rest.
  EXPECT_EQ(idle("  object trained, vector -> decay 0\n"
                 "  object of router, matrix -> trained and rate 2 and bf16"),
            (Lines{"f.functor:4: this rule finds nothing here"}));
  // What its condition switches off is silent on purpose.
  EXPECT_EQ(idle("  object trained, vector -> decay 0\n"
                 "  object trained, of router -> rate 2 when L > 100"),
            Lines{});
  EXPECT_EQ(idle("  object trained, vector -> decay 0\n"
                 "  object parameter inside chain -> rate 2 when l > 100"),
            Lines{});
}

// Which l would a weight have that several blocks share?
TEST(Training, SharedWeightsAreToldOfWhereARuleSpeaksOfBlocks) {
  using Lines = std::vector<std::string>;
  // Four blocks, whose norms are one.
  const Scheme forward = elaborate_text(
      "axes layers=4 hidden=8 context=4 vocab=11\n"
      "block x[batch, seq, hidden]:\n"
      "  x = x + linear(gelu(linear(rms_norm(x, weights=one), 16)), hidden)\n"
      "model tokens[batch, seq], targets[batch, seq]:\n"
      "  x = rms_norm(embed(tokens, vocab), name=one)\n"
      "  x = block^layers(x)\n"
      "  loss = cross_entropy(linear(x, vocab), targets)\n");
  const auto idle = [&](const std::string& lines) {
    return build_step(forward, with_rules(lines), {}).applied.at(0).idle_rules;
  };
  const std::string told =
      "this rule speaks of l and leaves 'one.weight' alone, which several blocks share";
  EXPECT_EQ(idle("  object trained inside chain -> rate pow(0.9, L - l)"),
            Lines{"f.functor:3: " + told});
  EXPECT_EQ(idle("  object parameter -> frozen when l < 2"), Lines{"f.functor:3: " + told});
  EXPECT_EQ(idle("  object trained inside chain -> rate 0.9"), Lines{}) << "it speaks of no l";
  EXPECT_EQ(idle("  object trained inside chain, matrix -> rate pow(0.9, L - l)"), Lines{});
  EXPECT_EQ(idle("  object trained, vector -> rate 2\n"
                 "  object trained inside chain -> rate pow(0.9, L - l)"),
            Lines{})
      << "another rule speaks for it";
}

// Uses without a role are counted by their op.
TEST(Training, UsesAreCountedByWhatTheyAre) {
  const auto counts = [](const std::string& lines) {
    return build_step(small_gpt2(), with_rules(lines), {}).applied.at(0).counts;
  };
  using Counts = std::map<std::string, int64_t>;
  EXPECT_EQ(counts("  morphism y = gelu(x) -> 2*y"), (Counts{{"gelu", 4}}));
  EXPECT_EQ(counts("  morphism y = linear(x, W) where attention_out -> 2*y"),
            (Counts{{"attention_out", 4}}));
}

// Several stacks that share their beginning share how parameters are trained.
TEST(Training, ABuilderOfManyStepsKeepsIt) {
  StepBuilder builder(small_llama(), {});
  const Stack faster = with_rules("  object parameter -> rate 2"), plain = parse_stack("");
  EXPECT_TRUE(trainings(builder.build(plain).scheme).empty());
  EXPECT_EQ(trainings(builder.build(faster).scheme).size(), 39u);
  EXPECT_TRUE(trainings(builder.build(plain).scheme).empty());
}

}  // namespace
}  // namespace adjoint
