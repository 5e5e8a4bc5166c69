// Rules that speak of places: l, the block of an object or a use, and what is inside a
// feed-forward; and gradients and states by what their parameter is, in the step that the pipeline
// builds.
#include <gtest/gtest.h>

#include <set>

#include "analysis/roles.h"
#include "base/error_text.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"
#include "models/test_models.h"

namespace adjoint {
namespace {

SourceNames recomputed(const Scheme& s) {
  return sources_where(
      s, [](const Object& o) { return o.attributes.residence == Residence::kRecomputed; });
}
SourceNames on_host(const Scheme& s) {
  return sources_where(s, [](const Object& o) { return o.attributes.tier == Tier::kHost; });
}
SourceNames narrow(const Scheme& s) {
  return sources_where(s, [](const Object& o) { return o.attributes.precision == "bf16"; });
}

// The blocks of the paths in `names`.
std::set<int> blocks_of(const SourceNames& names) {
  std::set<int> blocks;
  for (const std::string& name : names) {
    EXPECT_TRUE(name.starts_with("block[")) << name;
    if (name.starts_with("block[")) blocks.insert(std::stoi(name.substr(6)));
  }
  return blocks;
}

TEST(TextBlocks, FreezesTheFirstHalf) {
  for (const Scheme& forward : {small_gpt2(), small_llama()}) {
    const Scheme said = said_step(
        forward, with_rules("  object parameter inside chain -> frozen when l < L/2"), {});
    size_t wanted = 0;
    for (const std::string& path : paths_of(forward, Role::kParameter)) {
      wanted += path.starts_with("block[0]") || path.starts_with("block[1]");
    }
    EXPECT_EQ(frozen(said).size(), wanted);
    EXPECT_EQ(blocks_of(frozen(said)), (std::set<int>{0, 1}));
  }
}

// A rule that speaks of l finds only what is in the chain, whatever its selector says.
TEST(TextBlocks, WhatIsOutsideTheChainHasNoBlock) {
  const Scheme said = said_step(
      small_gpt2(), with_rules("  object parameter -> frozen when not (l == 1 or l > 2)"), {});
  EXPECT_EQ(blocks_of(frozen(said)), (std::set<int>{0, 2}));
  const std::string found_none = error_text([&] {
    build_step(small_gpt2(), with_rules("  object parameter outside chain -> host when l >= 0"),
               {});
  });
  EXPECT_TRUE(has(found_none, "f: matches nothing; this scheme has a chain of 4 blocks"))
      << found_none;
}

TEST(TextBlocks, GradientsStatesAndActivationsAreInABlock) {
  const Scheme host =
      said_step(small_gpt2(), with_rules("  object optimizer_state -> host when l == 2"), {});
  EXPECT_EQ(blocks_of(on_host(host)), (std::set<int>{2}));
  EXPECT_EQ(on_host(host).size(), 24u) << "two moments of twelve parameters";
  const Scheme half =
      said_step(small_llama(),
                with_rules("  object gradient of parameter -> bf16 when (l + 1) mod 2 == 0"), {});
  EXPECT_EQ(blocks_of(narrow(half)), (std::set<int>{1, 3}));
  const Scheme states =
      said_step(small_gpt2(), with_rules("  object state -> bf16 when l == 0"), {});
  EXPECT_EQ(narrow(states), (SourceNames{"block[0].add#2"}))
      << "a state is in the block that makes it";
}

TEST(TextBlocks, EveryThirdFeedForwardIsRecomputed) {
  const Scheme said =
      said_step(small_gpt2(),
                with_rules("  object inside feed_forward -> recomputed when l mod 3 == 0",
                           "-recompute_cheap"),
                {});
  EXPECT_EQ(recomputed(said), (SourceNames{"block[0].gelu#1", "block[3].gelu#1"}));
  const Scheme gated = said_step(
      small_llama(),
      with_rules("  object inside feed_forward -> recomputed when l == 1", "-recompute_cheap"), {});
  EXPECT_EQ(recomputed(gated), (SourceNames{"block[1].silu#1", "block[1].mul#1"}));
}

// Experts: what lies between up and down, and the router's weights; neither a view of up's result
// nor the sum with the residual.
TEST(TextBlocks, TheFeedForwardOfExperts) {
  const Scheme said = said_step(
      test_model("moe"),
      with_rules("  object inside feed_forward -> recomputed when l == 0", "-recompute_cheap"), {});
  EXPECT_EQ(recomputed(said),
            (SourceNames{"block[0].gelu#1", "block[0].merge#1", "block[0].mul#1",
                         "block[0].route#1", "block[0].split#2", "block[0].top_k#1"}));
}

// Two feed-forwards in one block: what joins them to the residual is in neither.
TEST(TextBlocks, AResidualIsOutsideTheFeedForward) {
  const Scheme forward = elaborate_text(R"(axes hidden=8 context=4 vocab=11 l=3
twice x[batch, seq, hidden]:
  x = x + dropout(linear(gelu(linear(rms_norm(x), 2*hidden)), hidden), 0.1)
  x = x + linear(silu(linear(rms_norm(x), 3*hidden)), hidden)
model tokens[batch, seq], targets[batch, seq]:
  x = twice^l(embed(tokens, vocab))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)",
                                        {.settings = {{"batch", 2}}});
  const Scheme said = said_step(
      forward,
      with_rules("  object inside feed_forward -> recomputed when l == L - 1", "-recompute_cheap"),
      {});
  EXPECT_EQ(recomputed(said), (SourceNames{"twice[2].gelu#1", "twice[2].silu#1"}))
      << "the model's own l is no number of the functor";
}

const std::string kAdapter =
    "\n    -> y + linear(linear(x, 2, bias=no, name=a), width(y), bias=no, name=b, init=zeros)";

// The uses whose paths the functor made something under.
SourceNames adapted(const Scheme& s) {
  SourceNames names;
  for (const std::string& path : paths_of(s, Role::kParameter)) {
    const size_t at = path.find(".a.weight");
    if (at != path.npos) names.insert(path.substr(0, at));
  }
  return names;
}

TEST(TextBlocks, AdaptersInTheLastBlocks) {
  const Scheme said =
      said_step(small_gpt2(),
                with_rules("  morphism y = linear(x, W) where parameter(W), attention_in "
                           "when l >= L - 2" +
                           kAdapter),
                {});
  EXPECT_EQ(adapted(said), (SourceNames{"block[2].qkv", "block[3].qkv"}));
  // A use outside the chain has no block.
  const Scheme all = said_step(
      small_gpt2(), with_rules("  morphism y = linear(x, W) when not l in [1, 2]" + kAdapter), {});
  EXPECT_EQ(blocks_of(adapted(all)), (std::set<int>{0, 3}));
  const Scheme inside = said_step(
      small_gpt2(),
      with_rules("  morphism y = gelu(x) where inside feed_forward when l == 1 -> y - y"), {});
  EXPECT_TRUE(inside.find({"block[1].gelu#1.sub#1"}));
  EXPECT_FALSE(inside.find({"block[0].gelu#1.sub#1"}));
}

TEST(TextBlocks, TheRightSideMayNameTheBlock) {
  const Scheme said =
      said_step(small_gpt2(),
                with_rules("  morphism y = linear(x, W) where feed_forward -> y * (l + 1)/L"), {});
  const auto by = [&](const std::string& path) {
    return std::get<double>(call_at(said, path).attrs.at("by"));
  };
  EXPECT_EQ(by("block[0].up.scale#1"), 1.0);
  EXPECT_EQ(by("block[2].down.scale#1"), 3.0);
}

// A right side may use the weight itself, and what is computed of parameters alone: a vector that
// scales the weight's rows is still a vector, and all of it is in the use's block.
TEST(TextBlocks, TheRightSideMayUseTheWeight) {
  const std::string rule =
      "  morphism y = linear(x, W) where attention_out\n"
      "    -> linear(x, width(y), weight=rms_norm(W + 2*W, name=rows), bias=no, name=again) + "
      "linear(x, width(y), weight=W, bias=no, name=same)\n"
      "  object vector inside chain -> decay 0.5 when l == 1";
  const Scheme said = said_step(small_llama(), with_rules(rule), {});
  EXPECT_EQ(call_at(said, "block[1].o.same").inputs[1], *said.find({"block[1].o.weight"}));
  const Value rows = call_at(said, "block[1].o.again").inputs[1];
  EXPECT_EQ(to_string(said[rows].source), "block[1].o.rows");
  EXPECT_EQ(object_at(said, "block[1].o.rows.weight").attributes.training.decay, 0.5);
  EXPECT_EQ(object_at(said, "block[2].o.rows.weight").attributes.training.decay, std::nullopt);
  EXPECT_EQ(object_at(said, "block[1].o.weight").attributes.training.decay, std::nullopt);
  EXPECT_EQ(find_chain(said).length(), 4);
}

// Blocks that functors treated unlike are still blocks of one chain.
TEST(TextBlocks, TheChainStaysOneChain) {
  const std::vector<std::string> conditions = {"l >= L - 1", "l < 2", "l mod 2 == 0", "l == 1"};
  for (const std::string& condition : conditions) {
    for (const auto& [forward, activation] :
         {std::pair{small_gpt2(), std::string("gelu")}, {small_llama(), "silu"}}) {
      const std::vector<std::string> rules = {
          "linear(x, W) where attention when " + condition + kAdapter,
          "add(a, x) where inside chain when " + condition + " -> 0.5 * y",
          activation + "(x) when " + condition + " -> dropout(y, 0.1)"};
      for (const std::string& rule : rules) {
        const Stack stack = with_rules("  morphism y = " + rule);
        EXPECT_EQ(find_chain(said_step(forward, stack, {})).length(), 4) << rule;
      }
    }
  }
  const Scheme kept =
      said_step(small_gpt2(),
                with_rules("  morphism y = linear(x, W) where attention when l == 1" + kAdapter,
                           "checkpoint(every=2)"),
                {});
  EXPECT_EQ(sources_where(
                kept, [](const Object& o) { return o.attributes.residence == Residence::kKept; }),
            (SourceNames{"add#1", "block[1].add#2", "block[3].add#2"}));
}

// What a step's rules find of gradients and states, in all that the defaults made of the step.
TEST(TextBlocks, GradientsAndStatesByWhatTheirParameterIs) {
  const auto host = [](const Scheme& forward, const std::string& selector) {
    return on_host(said_step(forward, with_rules("  object " + selector + " -> host"), {}));
  };
  const auto bf16 = [](const Scheme& forward, const std::string& selector) {
    return narrow(said_step(forward, with_rules("  object " + selector + " -> bf16"), {}));
  };
  EXPECT_EQ(host(small_llama(), "optimizer_state of embedding"),
            (SourceNames{"wte.weight:adamw.m", "wte.weight:adamw.v"}));
  EXPECT_EQ(host(small_llama(), "optimizer_state of table").size(), 2u);
  EXPECT_EQ(host(small_llama(), "optimizer_state of norm").size(), 2 * 9u);
  EXPECT_EQ(host(small_llama(), "optimizer_state of vector").size(), 2 * 9u);
  // Seven maps in each block, and the readout.
  EXPECT_EQ(host(small_llama(), "optimizer_state of matrix").size(), 2 * 29u);
  EXPECT_EQ(host(small_llama(), "optimizer_state of attention").size(), 2 * 16u);
  EXPECT_EQ(host(small_llama(), "optimizer_state of feed_forward").size(), 2 * 12u);
  EXPECT_EQ(bf16(small_gpt2(), "gradient of parameter of norm").size(), 2 * 9u);
  EXPECT_EQ(bf16(small_gpt2(), "gradient of vector, inside chain").size(), 4 * 8u);
  // Weights that are joined: the gradient of all of them, and each one's part of it.
  const SourceNames joined = bf16(small_llama(), "gradient of parameter of feed_forward");
  for (const char* wanted : {"block[0].gate.weight.joined:grad", "block[0].gate.weight:grad",
                             "block[0].up.weight:grad", "block[3].down.weight:grad"}) {
    EXPECT_TRUE(joined.count(wanted)) << wanted;
  }
  EXPECT_EQ(joined.size(), 4 * 4u);
  EXPECT_EQ(bf16(small_llama(), "gradient of matrix of feed_forward"), joined);
}

}  // namespace
}  // namespace adjoint
