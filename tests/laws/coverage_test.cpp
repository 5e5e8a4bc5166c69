// A copy in which a branch of a rule does not act is no copy to judge that rule by: it grows, or
// the branch is named. Only schemes are built here.
#include "laws/coverage.h"

#include <gtest/gtest.h>

#include "functors/functor_text.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

Functor of_rule(const std::string& rule) {
  return parse_functor("functor my:\n  law exact\n" + rule, "my.functor");
}

Checkup checkup(const std::string& model, const Stack& stack, nlohmann::json settings = {}) {
  VerifyOptions options{.sizes = {.batch = 0}, .seeds = 1};
  if (!settings.is_null()) options.sizes.settings = std::move(settings);
  return checkup_for(find_model(model), stack, options);
}

// "layers=6 hidden=64 ..."
int64_t blocks_of(const Checkup& c) { return std::stoll(c.subjects[0].what.substr(7)); }

struct Case {
  std::string rule;
  int64_t blocks;  // the fewest that show everything
};

TEST(Coverage, TheCopyGrowsUntilEveryBranchActs) {
  const Case cases[] = {
      {"  object x_l in chain -> kept\n", 4},
      // State 5 must be an inner one, as it is in the model: six blocks.
      {"  object x_l in chain -> f32 when l <= 4, else bf16\n", 6},
      // What no branch speaks of is a branch too.
      {"  object x_l in chain -> bf16 when l <= 4\n", 6},
      // Each alternative by itself; behind state 6 one more that is the other branch's.
      {"  object x_l in chain -> bf16 when l == 1 or l == 6, else f32\n", 7},
      // State 5, which is not the first, and one behind it.
      {"  object x_l in chain -> bf16 when l mod 5 == 0, else f32\n", 6},
      // Two states below half of it, so that one is not of the first block.
      {"  object x_l in chain -> bf16 when l < L/2, else f32\n", 5},
      {"  object x_l in chain -> bf16 when l == L - 1, else f32\n", 4},
      // The block of a parameter, and of a use, is a branch as the number of a state is.
      {"  object parameter of norm -> host when l == 4\n", 6},
      {"  morphism y = gelu(x) when l < 4 -> 0.5 * y\n", 6},
      // A let is a branch: the model has twelve blocks.
      {"  let k = 1 when L > 5, else 2\n  object x_l in chain -> bf16 when l mod k == 0, else "
       "f32\n",
       6},
  };
  for (const Case& c : cases) {
    const Checkup found = checkup("gpt2", with_planted({of_rule(c.rule)}));
    EXPECT_EQ(blocks_of(found), c.blocks) << c.rule << found.subjects[0].what;
    EXPECT_TRUE(found.unseen.empty()) << c.rule << found.unseen[0];
  }
}

TEST(Coverage, ParametersOfKnownFunctors) {
  EXPECT_EQ(blocks_of(checkup("gpt2", parse_stack("checkpoint(every=2)"))), 4);
  // State 5 is kept and state 6 is not.
  EXPECT_EQ(blocks_of(checkup("gpt2", parse_stack("checkpoint(keep=[2, 5])"))), 7);
  // Blocks 0 to 4 keep what the others recompute; two of those side by side, and the last one,
  // whose state is not recomputed.
  const Checkup reside = checkup("gpt2", parse_stack("reside(kept=[\"block[0..4].up\"])"));
  EXPECT_EQ(blocks_of(reside), 8);
  EXPECT_TRUE(reside.unseen.empty());
}

// Nothing is plainly said of what is too deep for any copy.
TEST(Coverage, WhatIsTooDeepIsNamed) {
  const Functor deep = of_rule("  object x_l in chain -> f32 when l <= 40, else bf16\n");
  const Checkup found = checkup("gpt2-xl", with_planted({deep}));
  ASSERT_FALSE(found.unseen.empty());
  EXPECT_NE(found.unseen[0].find("my, my.functor:3: else bf16: at block[40].add#2"),
            std::string::npos)
      << found.unseen[0];
  EXPECT_LE(blocks_of(found), 24);
}

// The models that everybody uses, with stacks that everybody uses, need no more than they did.
TEST(Coverage, UsualStacksAreSeenInFewBlocks) {
  for (const char* model : {"gpt2", "llama3.2-1b"}) {
    for (const char* stack : {"", "bf16 | checkpoint(every=2) | accumulate(4) | lora(rank=8)",
                              "lora(8) | quantize(nf4) | bf16", "offload(activations)"}) {
      const Checkup found = checkup(model, parse_stack(stack));
      EXPECT_LE(blocks_of(found), 4) << model << " '" << stack << "'";
      EXPECT_TRUE(found.unseen.empty()) << model << " '" << stack << "': " << found.unseen[0];
    }
  }
}

// A functor that finds large tensors only is told what is large on a copy.
TEST(Coverage, ChunksAreMadeInTheCopyToo) {
  const Checkup found = checkup("gpt2", parse_stack(""));
  const BuiltStep built =
      build_step(found.subjects[0].forward, found.stack, found.subjects[0].options);
  bool chunked = false;
  for (const Applied& a : built.applied) {
    chunked = chunked || (a.name.starts_with("chunk_readout") && a.matches > 0);
  }
  EXPECT_TRUE(chunked);
}

// A wrong functor that acts only deeper than a short copy.
TEST(Coverage, AWrongFunctorInDeepBlocksIsCaught) {
  const Functor deep = of_rule("  object x_l in chain -> f32 when l <= 4, else bf16\n");
  Checkup found = checkup("gpt2", with_planted({deep}));
  found.subjects.pop_back();  // the narrow copy has it
  const Report report = verify_stack(found.subjects, found.stack);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.reason.find("law of my broken: first at block[4].add#2"), 0u) << report.reason;
}

}  // namespace
}  // namespace adjoint
