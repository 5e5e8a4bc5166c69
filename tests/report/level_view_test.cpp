// A scheme seen from further away: pieces, repetitions and what one of them does; and as JSON.
#include "report/level_view.h"

#include <gtest/gtest.h>

#include "analysis/totals.h"
#include "base/error_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"
#include "report/scheme_json.h"

namespace adjoint {
namespace {

std::vector<std::string> titles(const Scheme& scheme) {
  std::vector<std::string> out;
  for (const ChainPiece& piece : chain_pieces(scheme)) {
    out.push_back(piece.name + (piece.repeat > 1 ? "^" + std::to_string(piece.repeat) : ""));
  }
  return out;
}

TEST(LevelView, ARepeatedBoxIsOnePiece) {
  const Scheme gpt2 = elaborate_preset("char", {{"layers", 5}, {"hidden", 32}, {"seq", 8}});
  EXPECT_EQ(titles(gpt2), (std::vector<std::string>{"wte", "position", "wpe", "add", "block^5",
                                                    "layer_norm", "readout", "cross_entropy"}));
  for (const ChainPiece& piece : chain_pieces(gpt2)) {
    if (piece.repeat == 1) continue;
    ASSERT_EQ(piece.variants.size(), 1u);  // all blocks do the same
    EXPECT_EQ(piece.variants[0].blocks, (std::vector<int>{0, 1, 2, 3, 4}));
    EXPECT_EQ(piece.inputs.size(), 1u);
    EXPECT_EQ(piece.outputs.size(), 1u);
  }
}

// Every other block of Gemma has a window.
TEST(LevelView, BlocksThatDifferAreVariants) {
  const Scheme gemma = elaborate_preset("gemma2-tiny", {{"layers", 4}});
  bool found = false;
  for (const ChainPiece& piece : chain_pieces(gemma)) {
    if (piece.repeat != 4) continue;
    found = true;
    ASSERT_EQ(piece.variants.size(), 2u);
    EXPECT_EQ(piece.variants[0].blocks, (std::vector<int>{0, 2}));
    EXPECT_EQ(piece.variants[1].blocks, (std::vector<int>{1, 3}));
  }
  EXPECT_TRUE(found);
}

Scheme four_blocks(const std::string& line) {
  const std::string text =
      "axes layers=4 hidden=8 context=4 vocab=11\n"
      "block x[batch, seq, hidden]:\n"
      "  y = linear(x, hidden, name=up)\n"
      "  x = " +
      line +
      "\nmodel tokens[batch, seq], targets[batch, seq]:\n"
      "  x = embed(tokens, vocab, name=wte)\n"
      "  x = linear(linear(x, hidden, bias=no, name=even), hidden, bias=no, name=odd)\n"
      "  loss = cross_entropy(linear(block^layers(x), vocab, name=out), targets)\n";
  return elaborate_text(text);
}

std::vector<std::vector<int>> variants_of(const Scheme& scheme) {
  std::vector<std::vector<int>> blocks;
  for (const ChainPiece& piece : chain_pieces(scheme)) {
    for (const Variant& variant : piece.variants) blocks.push_back(variant.blocks);
  }
  return blocks;
}

// What a repetition reads from outside, and where it puts it, is a part of what it does.
TEST(LevelView, BlocksThatReadOtherThingsAreVariants) {
  using Blocks = std::vector<std::vector<int>>;
  EXPECT_EQ(variants_of(four_blocks("x + y")), (Blocks{{0, 1, 2, 3}}));
  EXPECT_EQ(variants_of(four_blocks("(x - y when l == 0 else y - x)")), (Blocks{{0}, {1, 2, 3}}));
  EXPECT_EQ(variants_of(four_blocks("y + linear(x, hidden, bias=no, name=in, "
                                    "weight=even when l mod 2 == 0 else odd)")),
            (Blocks{{0, 2}, {1, 3}}));
}

// Joined weights are made of parameters alone, and are no state of a sample.
TEST(LevelView, KeptBytesAreOfSamples) {
  const Scheme forward = elaborate_preset("llama-tiny", {{"batch", 4}});
  const auto kept = [&](const char* stack) {
    Bytes all{0};
    for (const ChainPiece& piece :
         chain_pieces(build_step(forward, parse_stack(stack), {}).scheme)) {
      all += piece.kept;
    }
    return all.count;
  };
  EXPECT_EQ(kept(""), kept("-join_projections"));
}

// What makes two variants differ is said.
TEST(LevelView, VariantsSayWhereTheyDiffer) {
  const Scheme scheme = elaborate(
      parse_document(
          "axes layers=4 hidden=16 context=8\n"
          "block x[batch, seq, hidden]:\n"
          "  x = x + attention(linear(x, 3*hidden, name=qkv), 2, causal, window=4 when l mod "
          "2 == 0)\n"
          "model tokens[batch, seq]:\n"
          "  x = block^layers(embed(tokens, 13, name=wte))\n",
          "t"),
      "t", {});
  const std::string text = level_text(scheme, Level::kBlock, nullptr);
  EXPECT_NE(text.find("block 0, 2:"), text.npos) << text;
  EXPECT_NE(text.find("attention(qkv, window=4)"), text.npos) << text;
  EXPECT_NE(text.find("attention(qkv) "), text.npos) << text;
  EXPECT_EQ(text.find("causal="), text.npos) << "all have it:\n" << text;
}

// Nothing is counted twice or left out, on any level.
TEST(LevelView, PiecesAreTheWholeScheme) {
  for (const char* preset : {"char", "llama-tiny"}) {
    const Scheme forward = elaborate_preset(preset, {{"layers", 3}, {"hidden", 32}, {"batch", 2}});
    for (const char* stack :
         {"", "checkpoint(every=2)", "lora(2) | accumulate(2)", "bf16", "bf16_weights", "ema",
          "qlora(2, group=16)", "qlora(2, group=16) | offload(parameters)",
          "data_parallel(2) | zero(3)", "qlora(2, group=16) | data_parallel(2) | zero(3)",
          "tensor_parallel(2)"}) {
      const Scheme step =
          build_step(forward, parse_stack(stack), {.stack = stack, .on_mesh = true}).scheme;
      for (const Scheme* scheme : {&forward, &step}) {
        int64_t parameters = 0;
        size_t morphisms = 0;
        for (const ChainPiece& piece : chain_pieces(*scheme)) {
          parameters += piece.parameters;
          morphisms += piece.morphisms.size();
        }
        EXPECT_EQ(parameters, num_parameters(*scheme)) << preset << " " << stack;
        EXPECT_EQ(morphisms, scheme->morphisms.size()) << preset << " " << stack;
      }
    }
  }
}

TEST(LevelView, RefusesAnotherWord) {
  EXPECT_TRUE(has(error_text([] { level_named("blocks"); }), "did you mean 'block'?"));
}

// What the studio draws is the scheme itself.
TEST(SchemeJson, HasEveryObjectAndMorphism) {
  const Scheme forward = elaborate_preset("char", {{"layers", 2}, {"hidden", 32}, {"seq", 8}});
  const Scheme step = build_step(forward, parse_stack("bf16 | checkpoint(every=1)"), {}).scheme;
  const nlohmann::json out = scheme_json(step);
  ASSERT_EQ(out["objects"].size(), step.objects.size());
  ASSERT_EQ(out["morphisms"].size(), step.morphisms.size());
  for (size_t v = 0; v < step.objects.size(); ++v) {
    EXPECT_EQ(out["objects"][v]["source"], to_string(step.objects[v].source));
    EXPECT_EQ(out["objects"][v]["bytes"], step.objects[v].type.bytes().count);
  }
  bool again = false;
  for (size_t i = 0; i < step.morphisms.size(); ++i) {
    const nlohmann::json& m = out["morphisms"][i];
    EXPECT_EQ(m["inputs"].get<std::vector<Value>>(), step.morphisms[i].inputs);
    EXPECT_EQ(m.value("epoch", 0), step.morphisms[i].epoch);
    again = again || m.contains("epoch");
    if (m.contains("body")) {
      EXPECT_TRUE(out["bodies"].contains(m["body"].get<std::string>()));
    }
  }
  EXPECT_TRUE(again) << "a checkpointed step computes something again";
  EXPECT_EQ(out["chain"]["states"].size(), 3u);
}

}  // namespace
}  // namespace adjoint
