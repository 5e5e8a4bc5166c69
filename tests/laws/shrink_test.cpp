// Every known model has a small copy of the same structure at two widths.
#include "laws/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "functors/evaluation.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

BoundModel whole(const std::string& preset) { return BoundModel(find_model(preset), {}); }

TEST(Shrink, AxesAreKnownByTheirUse) {
  using U = AxisUse;
  EXPECT_EQ(axis_uses(whole("gpt2"), {}), (std::map<std::string, U>{{"layers", U::kRepeats},
                                                                    {"hidden", U::kWidth},
                                                                    {"heads", U::kSmall},
                                                                    {"ffn", U::kDerived},
                                                                    {"context", U::kContext},
                                                                    {"vocab", U::kVocab}}));
  EXPECT_EQ(axis_uses(whole("gpt2"), {{"ffn", 512}})["ffn"], U::kWidth);
  EXPECT_EQ(axis_uses(whole("llama3-8b"), {}), (std::map<std::string, U>{{"layers", U::kRepeats},
                                                                         {"hidden", U::kWidth},
                                                                         {"heads", U::kSmall},
                                                                         {"kv_heads", U::kSmall},
                                                                         {"dim", U::kDerived},
                                                                         {"ffn", U::kWidth},
                                                                         {"context", U::kContext},
                                                                         {"vocab", U::kVocab}}));
}

TEST(Shrink, EveryPresetHasTwoWidths) {
  for (const std::string& preset : known_presets()) {
    const BoundModel model = whole(preset);
    for (const int64_t width : {64, 256}) {
      const BoundModel small = shrunken(model, {}, {.width = width});
      const Settings& s = small.settings();
      EXPECT_GE(s.at("hidden"), width) << preset;
      EXPECT_LT(s.at(s.count("narrow") ? "narrow" : "hidden"), 2 * width) << preset;
      EXPECT_EQ(s.at("layers"), std::min(4.0, model.settings().at("layers"))) << preset;
      EXPECT_LE(s.at("vocab"), 61) << preset;
      EXPECT_GE(s.at("heads"), 2) << preset;
      EXPECT_GE(s.at("hidden") / s.at("heads"), 8) << preset;
      EXPECT_EQ(s.at("dropout"), 0.1) << preset;
      EXPECT_EQ(small.batch(), 6);
      EXPECT_EQ(small.context(), 8);
      if (s.count("tied")) {
        EXPECT_EQ(s.at("tied"), model.settings().at("tied"));
        EXPECT_GT(s.at("heads"), s.at("kv_heads") - 1) << preset;
      }
    }
  }
}

// Groups of heads stay groups.
TEST(Shrink, RatiosAreKept) {
  const BoundModel small = shrunken(whole("llama3-8b"), {}, {.width = 64});
  EXPECT_EQ(small.settings().at("heads"), 8);
  EXPECT_EQ(small.settings().at("kv_heads"), 2);
  EXPECT_EQ(small.settings().at("ffn"), 224);  // 14336 / 64
}

// What ranks divide in the model they divide in the copy, and what they do not they do not, so that
// shards are padded in both or in neither.
TEST(Shrink, RanksDivideTheCopyAsTheyDivideTheModel) {
  for (const char* preset : {"gpt2", "char", "llama3-8b"}) {
    const BoundModel model = whole(preset);
    for (const std::vector<int64_t>& ranks : std::vector<std::vector<int64_t>>{
             {2}, {3}, {4}, {5}, {6}, {7}, {8}, {2, 4, 8}, {2, 3, 6}}) {
      const BoundModel small = shrunken(model, {}, {.width = 64, .ranks = ranks});
      for (const std::string& told : divided_otherwise(model, small, ranks)) {
        ADD_FAILURE() << preset << ": " << told;
      }
    }
  }
  // 12 heads over 4 ranks, and 50257 tokens, which is odd.
  const BoundModel small = shrunken(whole("gpt2"), {}, {.width = 64, .ranks = {4}});
  EXPECT_EQ(small.settings().at("heads"), 4);
  EXPECT_NE(static_cast<int>(small.settings().at("vocab")) % 4, 0);
  // Without ranks nothing changes: 12 heads become 6 or fewer, whatever divides the width.
  EXPECT_EQ(ranks_to_keep({{"data", 2}, {"tensor", 4}}), (std::vector<int64_t>{2, 4, 8}));
  EXPECT_TRUE(ranks_to_keep({}).empty());
}

TEST(Shrink, NamesThatNobodyForesaw) {
  const ModelText text{
      .file = "own.scheme",
      .text =
          "axes depth=9 wide=640 fans=5 context=99 words=1000\n"
          "numbers p=0\n"
          "step x[batch, seq, wide]:\n"
          "  x = x + dropout(linear(attention(linear(x, 3*wide), fans, causal), wide), p)\n"
          "model tokens[batch, seq], targets[batch, seq]:\n"
          "  x = step^depth(embed(tokens, words, wide))\n"
          "  loss = cross_entropy(linear(x, words), targets)\n"};
  const BoundModel small = shrunken(BoundModel(text, {}), {}, {.width = 64});
  const Settings& s = small.settings();
  EXPECT_EQ(s.at("depth"), 4);
  EXPECT_EQ(s.at("fans"), 2);  // 5, 3 do not divide 64
  EXPECT_EQ(s.at("wide"), 64);
  EXPECT_EQ(s.at("words"), 61);
  EXPECT_EQ(s.at("p"), 0.1);
}

// By position, by name, computed, in another box: whatever makes the model random is turned on, and
// nothing else is; and evaluation turns it off.
TEST(Shrink, RatesAreFoundHoweverTheyAreGiven) {
  const ModelText text{
      .file = "own.scheme",
      .text =
          "axes layers=2 hidden=64 heads=4 context=16 vocab=64\n"
          "numbers inner=0 by_name=0 half=0 boxed=0 gate=0 cap=0 depth=3 given=0.2\n"
          "drops x:\n"
          "  x = dropout(x, boxed)\n"
          "block x[batch, seq, hidden]:\n"
          "  a = attention(linear(x, 3*hidden), heads, causal, dropout=inner, cap=cap)\n"
          "  x = x + dropout(linear(a, hidden), rate=by_name) + gate*x\n"
          "  x = dropout(drops(dropout(x, half/2)), given)\n"
          "model tokens[batch, seq], targets[batch, seq]:\n"
          "  x = block^layers(embed(tokens, vocab))\n"
          "  loss = cross_entropy(linear(x, vocab), targets)\n"};
  const BoundModel model(text, {});
  for (const BoundModel& copy :
       {shrunken(model, {}, {.width = 64}), with_rates(model, {}, {.width = 64})}) {
    for (const char* rate : {"inner", "by_name", "half", "boxed"}) {
      EXPECT_EQ(copy.settings().at(rate), 0.1) << rate;
    }
    for (const char* other : {"gate", "cap"}) EXPECT_EQ(copy.settings().at(other), 0) << other;
    EXPECT_EQ(copy.settings().at("given"), 0.2);
    const auto num_random = [](const Scheme& scheme) {
      return std::count_if(
          scheme.morphisms.begin(), scheme.morphisms.end(),
          [&](const Morphism& m) { return effect_of(call_of(scheme, m)) == Effect::kRandom; });
    };
    EXPECT_EQ(num_random(copy.forward()), 2 * 5);
    EXPECT_EQ(num_random(without_randomness(copy.forward())), 0);
  }
}

}  // namespace
}  // namespace adjoint
