// The chain of repeated blocks is found in any model, whatever its boxes and weights are called.
#include "analysis/structure.h"

#include <gtest/gtest.h>

#include "functors/phases.h"
#include "functors/pipeline.h"
#include "models/elaborate.h"
#include "models/library.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

Scheme model(std::string_view text, int64_t batch = 2) {
  return elaborate(parse_document(text, "test"), "test",
                   {.settings = {{"batch", static_cast<double>(batch)}}});
}

constexpr std::string_view kNested = R"(axes hidden=8 context=4 vocab=11 outer=2 inner=3
leaf y[batch, seq, hidden]:
  y = y + linear(gelu(linear(rms_norm(y), 2*hidden)), hidden)
stem z[batch, seq, hidden]:
  z = leaf^inner(z)
model tokens[batch, seq], targets[batch, seq]:
  x = stem^outer(embed(tokens, vocab))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)";

TEST(Chain, NestedBoxesAreOneChain) {
  const Chain chain = find_chain(model(kNested));
  EXPECT_EQ(chain.length(), 6);
}

// Stages that end in something of their own: blocks are still what repeats most finely.
TEST(Chain, StagesWithATransition) {
  std::string text(kNested);
  text.replace(text.find("  z = leaf^inner(z)"), 19,
               "  z = rms_norm(linear(leaf^inner(z), hidden))");
  const Chain chain = find_chain(model(text));
  EXPECT_GE(chain.length(), 6);
}

TEST(Chain, BlocksWrittenOneByOne) {
  const Chain chain = find_chain(model(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab)
  x = x + gelu(linear(x, hidden))
  x = x + gelu(linear(x, hidden))
  x = x + gelu(linear(x, hidden))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)"));
  EXPECT_EQ(chain.length(), 3);
}

// Blocks that differ among each other, of which no two neighbours are equal.
TEST(Chain, AlternatingBlocks) {
  const Scheme scheme = model(R"(axes hidden=8 context=4 vocab=11 layers=5
wide x:
  y = linear(gelu(linear(x, 4*hidden)), hidden)
block x[batch, seq, hidden]:
  n = rms_norm(x)
  x = x + (wide(n) when l mod 3 == 0 else tanh(linear(n, hidden)))
model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)");
  const Chain chain = find_chain(scheme);
  ASSERT_EQ(chain.length(), 5);
  EXPECT_EQ(chain.states[0], *scheme.find({"embed#1"}));
  EXPECT_EQ(chain.states[3], *scheme.find({"block[2].add#1"}));
  EXPECT_EQ(chain.block_of[*scheme.find({"block[4].linear#1.weight"})], 4);
  // And as the step sees it, behind every fusion.
  StepOptions options;
  const Chain later = find_chain(training_step(scheme, options));
  EXPECT_EQ(later.length(), 5);
}

// What skips past blocks is no state; the last block of one half gives what the other half begins
// with.
TEST(Chain, HalvesWithSkipsBetweenThem) {
  const Scheme scheme = model(R"(axes hidden=8 context=4 vocab=11 half=3
mix x:
  x = x + gelu(linear(rms_norm(x), hidden))
down x:
  x = mix(x)
  x, kept = x, x
up x, kept:
  x = mix(x + kept*param(hidden, init=ones, name=gain))
model tokens[batch, seq], targets[batch, seq]:
  x, kept = down^half(embed(tokens, vocab))
  x = up^half(x, reverse(kept))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)");
  const Chain chain = find_chain(scheme);
  ASSERT_EQ(chain.length(), 6);
  EXPECT_EQ(chain.states[3], *scheme.find({"down[2].mix.add#1"}));
  EXPECT_EQ(chain.states[6], *scheme.find({"up[2].mix.add#1"}));
  EXPECT_EQ(chain.block_of[*scheme.find({"up[1].gain"})], 4);
}

TEST(Chain, NothingRepeats) {
  EXPECT_EQ(find_chain(model(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  x = gelu(linear(embed(tokens, vocab), hidden))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)"))
                .length(),
            0);
}

// x + f(x W) four times, f as texts say.
Scheme residual_blocks(const std::vector<std::string>& bodies) {
  std::string text = "scheme:\n  input %0 x: f32[s=3, h=4]\n  control %1 random: i64[counter=3]\n";
  const size_t count = bodies.size();
  for (size_t l = 0; l < count; ++l) {
    text +=
        "  parameter %" + std::to_string(2 + l) + " w" + std::to_string(l) + ": f32[h=4, h=4]\n";
  }
  size_t x = 0, next = 2 + count;
  for (size_t l = 0; l < count; ++l, next += 3) {
    const auto line = [&](size_t made, const std::string& path, const std::string& call) {
      text += "  %" + std::to_string(made) + " " + path + std::to_string(l) +
              ": f32[s=3, h=4] = " + call + " @" + path + std::to_string(l) + "\n";
    };
    const auto at = [](size_t v) { return "%" + std::to_string(v); };
    line(next, "y", "linear(" + at(x) + ", " + at(2 + l) + ")");
    line(next + 1, "f", "map(" + at(next) + ", %1) {body=\"" + bodies[l] + "\"}");
    line(next + 2, "z", "add(" + at(x) + ", " + at(next + 1) + ")");
    x = next + 2;
  }
  const Scheme scheme =
      parse_scheme(text + "  %" + std::to_string(next) + " end: f32[s=3, h=4] = exp(%" +
                   std::to_string(x) + ") @end\n  return %" + std::to_string(next) + "\n");
  verify(scheme);
  return scheme;
}

// A block is its bodies, not the length of their texts; paths of random numbers are no part of it.
TEST(Chain, BlocksOfDifferentBodiesDiffer) {
  EXPECT_EQ(find_chain(residual_blocks({"tanh(x0)", "tanh(x0)", "tanh(x0)", "tanh(x0)"})).length(),
            4);
  EXPECT_EQ(find_chain(residual_blocks({"tanh(x0)", "sqrt(x0)", "tanh(x0)", "sqrt(x0)"})).length(),
            2);
  EXPECT_EQ(find_chain(residual_blocks({"tanh(x0)", "sqrt(x0)", "cos(x0)"})).length(), 0);
  const auto draws = [](const std::string& a, const std::string& b) {
    return "mul(x0, add(random1'" + a + "', random1'" + b + "'))";
  };
  EXPECT_EQ(find_chain(residual_blocks({draws("block[9].a", "block[9].b"),
                                        draws("block[10].a", "block[10].b"),
                                        draws("block[11].a", "block[11].b")}))
                .length(),
            3);
  EXPECT_EQ(find_chain(residual_blocks(
                           {draws("block[1].a", "block[1].b"), draws("block[2].a", "block[2].a")}))
                .length(),
            0);
}

struct Known {
  const char* preset;
  int layers;
};

TEST(Chain, OfThePresets) {
  for (const Known& k : {Known{"gpt2", 12}, Known{"char", 4}, Known{"llama-tiny", 2}}) {
    const ModelText text = find_model(k.preset);
    const Scheme forward = elaborate(parse_document(text.text, text.file), text.file,
                                     {.preset = text.preset, .settings = {{"batch", 2}}});
    for (const Scheme& s : {forward, apply_optimizer(apply_adjoint(forward), {})}) {
      const Chain chain = find_chain(s);
      ASSERT_EQ(chain.length(), k.layers) << k.preset;
      // Every parameter's block is the repetition index of its path, and so is its gradient's.
      for (size_t v = 0; v < s.objects.size(); ++v) {
        const Object& o = s.objects[v];
        if (o.role != Role::kParameter && o.role != Role::kGradient) continue;
        const size_t bracket = o.source.path.find("block[");
        if (bracket != 0) continue;
        EXPECT_EQ(chain.block_of[v], std::stoi(o.source.path.substr(6))) << to_string(o.source);
      }
    }
  }
}

// Where projections are joined, a block reads its weights only through their concat. The weights,
// the concat and the gradients of both are in that block.
TEST(Chain, WhatIsReadThroughAConcatIsInTheBlockOfItsReader) {
  const ModelText text = find_model("llama-tiny");
  const Scheme forward = elaborate(parse_document(text.text, text.file), text.file,
                                   {.preset = text.preset, .settings = {{"batch", 2}}});
  const Scheme s = said_step(forward, parse_stack("join_projections"), {});
  const Chain chain = find_chain(s);
  ASSERT_EQ(chain.length(), 2);
  int concats = 0;
  for (size_t i = 0; i < s.morphisms.size(); ++i) {
    const Morphism& m = s.morphisms[i];
    if (m.phase != Phase::kForward || !m.source.path.ends_with(".weight.joined")) continue;
    EXPECT_EQ(chain.block_of_morphism[i], std::stoi(m.source.path.substr(6))) << m.source.path;
    ++concats;
  }
  EXPECT_EQ(concats, 4) << "of two blocks, those of attention and of the feed-forward";
  for (size_t v = 0; v < s.objects.size(); ++v) {
    const std::string& path = s.objects[v].source.path;
    if (!path.starts_with("block[")) continue;
    EXPECT_EQ(chain.block_of[v], std::stoi(path.substr(6))) << to_string(s.objects[v].source);
  }
}

// A concat that two blocks read is in neither, and nor are the parameters that it is made of.
TEST(Chain, WhatTwoBlocksReadThroughAConcatIsInNone) {
  const Scheme scheme = parse_scheme(R"(scheme:
  input %0 x: f32[s=3, h=4]
  parameter %1 u: f32[h=2, h=4]
  parameter %2 v: f32[h=2, h=4]
  parameter %3 w: f32[h=4, h=4]
  %4 uv: f32[h=4, h=4] = concat(%1, %2) {axis=0} @uv
  %5 a0: f32[s=3, h=4] = linear(%0, %4) @a0
  %6 b0: f32[s=3, h=4] = add(%0, %5) @b0
  %7 a1: f32[s=3, h=4] = linear(%6, %4) @a1
  %8 b1: f32[s=3, h=4] = add(%6, %7) @b1
  %9 end: f32[s=3, h=4] = linear(%8, %3) @end
  return %9
)");
  verify(scheme);
  const Chain chain = find_chain(scheme);
  ASSERT_EQ(chain.length(), 2);
  for (const Value v : {1, 2, 4}) EXPECT_EQ(chain.block_of[v], -1) << v;
  EXPECT_EQ(chain.block_of_morphism[0], -1);
}

}  // namespace
}  // namespace adjoint
