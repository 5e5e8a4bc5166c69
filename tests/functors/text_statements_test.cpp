// Rules of several lines: statements before the arrow, sizes of axes, the use again with other
// operands, and several rules about one op.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_text.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"

namespace adjoint {
namespace {

Scheme gpt2() { return small_gpt2(2, 3, 0.1); }
Scheme said(const std::string& lines) { return said_step(gpt2(), with_rules(lines), {}); }
std::string refusal(const std::string& lines) {
  return error_text([&] { build_step(gpt2(), with_rules(lines), {}); });
}
SourceNames sources(const Scheme& s, const std::vector<Value>& values) {
  SourceNames names;
  for (const Value v : values) names.insert(to_string(s[v].source));
  return names;
}

TEST(TextStatements, AreSharedAndCalledLikeTheirNames) {
  const Scheme s = said(R"(  morphism y = linear(x, W) where attention_out
    # two thin matrices
    A = param(2, width(x), init=uniform(0.5))
    B = param(width(y), 2)

    V, half = W + contract(B, A, "or,ri->oi"), 0.5*W
    -> y + linear(x, width(y), weight=V + half, bias=no, name=again) + linear(x, width(y), weight=V, bias=no))");
  const Object a = object_at(s, "block[1].proj.A"), b = object_at(s, "block[1].proj.B");
  EXPECT_EQ(shape_string(a.type), "[n0=2, heads*size=8]");
  EXPECT_EQ(a.init->kind, Init::Kind::kUniform);
  EXPECT_EQ(shape_string(b.type), "[hidden=8, n1=2]");
  const Morphism product = call_at(s, "block[1].proj.contract#1");
  EXPECT_EQ(sources(s, product.inputs), (SourceNames{"block[1].proj.A", "block[1].proj.B"}));
  EXPECT_EQ(call_at(s, "block[1].proj.linear#2").inputs[1],
            call_at(s, "block[1].proj.add#1").outputs[0])
      << "V is made once";
}

TEST(TextStatements, SizesOfAxes) {
  const Scheme s = said(R"(  morphism y = embed(ids, W) where input(ids)
    P = param(size(y, 0), size(y, 1), size(y, -1), name=all)
    Q = param(size(ids, -1), width(W))
    -> y + P + Q)");
  EXPECT_EQ(shape_string(object_at(s, "wte.all").type), "[batch=3, seq=4, hidden=8]");
  EXPECT_EQ(shape_string(object_at(s, "wte.Q").type), "[seq=4, hidden=8]");
}

// What is not given is the use's own, operands that the rule does not name included.
TEST(TextStatements, TheUseAgain) {
  const Scheme s = said("  morphism y = linear(x, W) where feed_forward -> y(2*x) + y(W=3*W)");
  const Morphism first = call_at(s, "block[0].up.linear#1");
  const Morphism second = call_at(s, "block[0].up.linear#2");
  ASSERT_EQ(first.inputs.size(), 3u);
  EXPECT_EQ(to_string(s[first.inputs[0]].source), "block[0].up.scale#1");
  EXPECT_EQ(to_string(s[first.inputs[1]].source), "block[0].up.weight");
  EXPECT_EQ(to_string(s[first.inputs[2]].source), "block[0].up.bias");
  EXPECT_EQ(to_string(s[second.inputs[0]].source), "block[0].layer_norm#2");
  EXPECT_EQ(to_string(s[second.inputs[1]].source), "block[0].up.scale#2");
  EXPECT_FALSE(s.find({"block[0].up"})) << "nobody reads it any more";
}

// Two masks are two: each call draws bits of its own. A constant goes by its name.
TEST(TextStatements, ARandomUseAgain) {
  const Scheme s = said("  morphism y = dropout(x) -> y(rate*x, name=a) + y()");
  const Morphism a = call_at(s, "block[0].dropout#1.a");
  const Morphism b = call_at(s, "block[0].dropout#1.dropout#2");
  EXPECT_EQ(a.inputs[1], b.inputs[1]);
  EXPECT_EQ(std::get<double>(b.attrs.at("rate")), 0.1);
  EXPECT_EQ(std::get<double>(call_at(s, "block[0].dropout#1.scale#1").attrs.at("by")), 0.1);
  EXPECT_NE(std::get<std::string>(a.attrs.at("key")), std::get<std::string>(b.attrs.at("key")));
}

// The rule that names most of a use's operands has it, wherever it stands; then the first.
TEST(TextStatements, SeveralRulesAboutOneOp) {
  const std::string three = "  morphism y = linear(x, W, b) where feed_forward -> y + 3*b\n";
  const auto rewritten = [](const std::string& lines) {
    const Scheme s = said(lines);
    SourceNames names;
    for (const Morphism& m : s.morphisms) {
      const std::string& path = m.source.path;
      if (m.phase != Phase::kForward || !path.starts_with("block[1].")) continue;
      if (std::count(path.begin(), path.end(), '.') == 2) names.insert(path.substr(9));
    }
    return names;
  };
  const std::string general =
      "  morphism y = linear(x, W) where parameter(W), inside chain -> 2*y\n";
  const SourceNames wanted = {"qkv.scale#1",  "proj.scale#1", "up.scale#1",
                              "down.scale#1", "up.add#1",     "down.add#1"};
  EXPECT_EQ(rewritten(general + three), wanted);
  EXPECT_EQ(rewritten(three + general), wanted);
  EXPECT_EQ(rewritten("  morphism y = linear(x) where attention_in -> 2*y\n"
                      "  morphism y = linear(x) where attention -> y + y\n"),
            (SourceNames{"qkv.scale#1", "proj.add#1"}));
  // One that finds nothing is no mistake where another about the op does.
  EXPECT_EQ(rewritten("  morphism y = linear(x) where router -> 2*y\n"
                      "  morphism y = linear(x) where attention_in -> 3*y\n"),
            (SourceNames{"qkv.scale#1"}));
  EXPECT_TRUE(has(refusal("  morphism y = linear(x) where router -> 2*y\n"
                          "  morphism y = linear(x) where outside chain, feed_forward -> 3*y\n"
                          "  morphism y = gelu(x) -> 3*y"),
                  "f: no 'linear' is what its rules ask for; this scheme has a chain of 2 blocks"));
  EXPECT_TRUE(has(refusal("  morphism y = silu(x) -> 2*y\n  morphism y = gelu(x) -> 3*y"),
                  "f: no 'silu' is what its rule asks for"));
}

TEST(TextStatements, MistakesNameTheirPlace) {
  struct Mistake {
    std::string lines, place, said;
  };
  const std::string head = "  morphism y = linear(x, W) where attention_in\n";
  const std::vector<Mistake> mistakes = {
      {head + "    x = 2*W\n    -> y + x", "4:5", "'x' is already the name of something"},
      {head + "    a, a = W, W\n    -> y + a", "4:8", "'a' is already the name of something"},
      {head + "    L = 2*W\n    -> y + L", "4:5", "'L' is already the name of something"},
      {head + "    a = 2*W\n    a = 3*W\n    -> y + a", "5:5", "already the name"},
      {head + "    a = 2*W\n    b = 3*W\n    -> y(x, b)", "4:5", "nothing below uses 'a'"},
      {head + "    a, b = 2*W\n    -> y(x, a + b)", "4:5", "2 names for 1 values"},
      {head + "    a = 2*V\n    -> y(x, a)", "4:11", "there is no object or number 'V' here"},
      {head + "    a =\n    -> y(x, a)", "4:8", "found the end of the line"},
      {head + "    a = 2*W", "5:1", "wanted '->'"},
      {head + "  object input -> host", "4:3", "wanted '->'"},
      {head + "    -> y(x, W, W)", "4:8", "y: too many operands; it takes x, W"},
      {head + "    -> y(V=W)", "4:8", "there is no operand 'V'; it takes x, W, and name"},
      {head + "    -> y(x, x=W)", "4:8", "y: 'x' is given twice"},
      {head + "    -> y(W, x)", "4:8", "linear: the weight"},
      {head + "    -> y(3)", "4:10", "y: 'x' must be an object, found the number 3"},
      {head + "    -> y^2(x)", "4:8", "only a box can be repeated"},
      {head + "    -> y * size(y, 3)", "4:20",
       "'y' has 3 axes: wanted the number of one, from -3 to 2, found size(y, 3)"},
      {head + "    -> y * size(y, -4)", "4:20", "from -3 to 2, found size(y, -4)"},
      {head + "    -> y * size(y, seq)", "4:20", "from -3 to 2, found size(y, seq)"},
      {head + "    -> y * size(z, 0)", "4:12",
       "size wants the result or an operand of this rule, found 'z'"},
      {head + "    -> y * width(2)", "4:12",
       "width wants the result or an operand of this rule, found '2'"},
      {head + "    P = param(3, width(y))\n    -> y + pad(P, 2, size(y, 1), axis=0)", "5:12",
       "pad: n0=3 at 2 is not inside 4"},
  };
  EXPECT_EQ(
      refusal("  morphism y = dropout(x, r) -> y(x, r)"),
      "f.functor:3:3: 'r' of dropout is what the run says, 'random': a rule does not name it");
  for (const Mistake& m : mistakes) {
    const std::string found = refusal(m.lines);
    EXPECT_TRUE(found.starts_with("f.functor:" + m.place + ": ")) << m.lines << "\n" << found;
    EXPECT_TRUE(has(found, m.said)) << m.lines << "\n" << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace adjoint
