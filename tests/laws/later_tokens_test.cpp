// A loss that depends on later tokens is told, with the call and its line; and nobody is told so of
// a model that hides them, however it does.
#include "laws/later_tokens.h"

#include <gtest/gtest.h>

#include "functors/functor_text.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

std::string doubt_about(const ModelText& text, const Stack& stack = parse_stack("")) {
  return doubt_about_later_tokens(BoundModel(text, {}), {}, stack, {}).value_or("");
}

ModelText model_with(const std::string& block, const std::string& loss = "targets") {
  return {.file = "mine.scheme",
          .text = R"(axes layers=3 hidden=32 heads=2 context=256 vocab=400
block x[batch, seq, hidden]:
  x = x + linear(gelu(linear(x, hidden, name=up)), hidden, name=down)
  )" + block + R"(
model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=wte))
  loss = cross_entropy(linear(rms_norm(x), vocab, bias=no, name=readout), )" +
                  loss + ")\n"};
}

TEST(LaterTokens, TheFirstCallThatReadsThemIsNamed) {
  const std::string shifted = doubt_about(model_with("x = x + shift(x, -1)"));
  EXPECT_NE(shifted.find("'block[0].shift#1' (mine.scheme:4) reads later positions"),
            std::string::npos)
      << shifted;
  EXPECT_NE(doubt_about(model_with("x = x + shift(x, -16)")), "");
  const std::string open = doubt_about(
      model_with("x = x + linear(attention(linear(x, 3*hidden), heads, causal=no), hidden)"));
  EXPECT_NE(open.find("(mine.scheme:4) reads later positions"), std::string::npos) << open;
  EXPECT_NE(doubt_about(model_with("x = x + mean(x, axis=seq, keep=yes)")), "");
  EXPECT_NE(doubt_about(model_with("x = x + shift(x, -1)", "shift(tokens, -1, fill=-1)")), "");
}

TEST(LaterTokens, WhoHidesThemIsNotAccused) {
  for (const char* block :
       {"x = x + linear(attention(linear(x, 3*hidden), heads, causal), hidden)",
        "x = x + shift(x, 1)", "x = x + conv(x, 4)",
        // A mask of one's own, and a sum over all positions that only earlier ones are in.
        "q = split(linear(x, hidden), heads)\n"
        "  scores = contract(q, q, \"bshd,bthd->bhst\")\n"
        "  i, j = index(scores, 2), index(scores, 3)\n"
        "  p = softmax(where(i >= j, scores, -1e30))\n"
        "  x = x + merge(contract(p, q, \"bhst,bthd->bshd\"))",
        "q = split(linear(x, hidden), heads)\n"
        "  scores = contract(q, q, \"bshd,bthd->bhst\")\n"
        "  x = x + merge(contract(where(index(scores, 2) >= index(scores, 3), scores, 0), q, "
        "\"bhst,bthd->bshd\"))"}) {
    EXPECT_EQ(doubt_about(model_with(block)), "") << block;
  }
  // The token after a position is what it should predict, fed or computed.
  EXPECT_EQ(doubt_about(model_with("x = x + shift(x, 1)", "shift(targets, -2, fill=-1)")), "");
  EXPECT_EQ(doubt_about(model_with("x = x + shift(x, 1)", "shift(tokens, -1, fill=-1)")), "");
}

TEST(LaterTokens, NoModelOfTheLibraryDoes) {
  for (const std::string& preset : known_presets()) {
    EXPECT_EQ(doubt_about(find_model(preset)), "") << preset;
  }
}

TEST(LaterTokens, AFunctorThatReadsThemIsNamed) {
  const Functor ahead = parse_functor(
      "functor ahead:\n  law approximating\n  morphism y = gelu(x) where inside chain\n"
      "    -> y + shift(y, -1)\n",
      "ahead.functor");
  const std::string doubt = doubt_about(find_model("char"), with_planted({ahead}));
  EXPECT_NE(doubt.find("shift#1' "), std::string::npos) << doubt;
  EXPECT_EQ(doubt_about(find_model("char"), parse_stack("lora(4) | bf16 | prompt(4)")), "");
}

TEST(LaterTokens, VerifySaysSo) {
  const Report report =
      verify_model(model_with("x = x + shift(x, -1)"), parse_stack(""), {.seeds = 1});
  EXPECT_TRUE(report.ok) << report.reason;
  EXPECT_EQ(report.doubts.size(), 1u);
}

}  // namespace
}  // namespace adjoint
