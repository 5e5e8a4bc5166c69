// The chain of repeated blocks is found in any model, whatever its boxes and weights are called.
#include "analysis/structure.h"

#include <gtest/gtest.h>

#include "functors/functor.h"
#include "models/elaborate.h"
#include "models/library.h"

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

TEST(Chain, NothingRepeats) {
  EXPECT_EQ(find_chain(model(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  x = gelu(linear(embed(tokens, vocab), hidden))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)"))
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

}  // namespace
}  // namespace adjoint
