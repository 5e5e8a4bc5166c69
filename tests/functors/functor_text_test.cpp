// Functors as text: what the notation means, and that every mistake names its place and the nearest
// word. What the built-in texts do to models is in text_rules_test.cpp.
#include "functors/functor_text.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error_text.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

FunctorText read(std::string_view text) { return parse_functor_text(text, "my.functor"); }

// A functor with these lines below its law.
std::string with_lines(const std::string& lines, const std::string& head = "functor f(k = 2)") {
  return head + ":\n  law exact\n" + lines;
}

TEST(FunctorText, EveryConstruct) {
  const FunctorText f = read(R"(# my.functor: What it does.
# And why.
functor idea(n, rank = 16, rate = 0.5: number, how = sqrt: count | sqrt | block, keep = []: list,
             on = all: several | all | attention | feed_forward):

  law reassociating
  default
  let k = how when number(how), else ceil(sqrt(L)) when how == sqrt, else 1
  let half = k/2
  require L > 0 and k <= L, else "how={how} of {L} blocks"
  object x_l in chain -> kept when l mod k == 0 or l in keep, else recomputed when half >= 1
  object activation, not inside attention
    -> bf16
  object parameter of norm -> frozen unless made here
  object input -> in 2*n parts
  object optimizer_state -> host
  object gradient of parameter outside chain -> sharded over data
  morphism y = linear(x, W) where parameter(W), inside chain, on  # uses
    -> y + rate*linear(x,
                       width(y), name=extra)
)");
  EXPECT_EQ(f.file, "my.functor");
  EXPECT_EQ(f.name, "idea");
  EXPECT_EQ(f.summary, "What it does.");
  EXPECT_EQ(f.law, Law::kReassociating);
  EXPECT_TRUE(f.by_default);

  ASSERT_EQ(f.params.size(), 6u);
  EXPECT_EQ(f.params[0].otherwise, "");
  EXPECT_EQ(f.params[1].otherwise, "16");
  EXPECT_TRUE(f.params[1].whole);
  EXPECT_FALSE(f.params[2].whole);
  EXPECT_EQ(f.params[3].words, (std::vector<std::string>{"sqrt", "block"}));
  EXPECT_LE(f.params[3].least, f.params[3].most) << "a count too";
  EXPECT_TRUE(f.params[4].list);
  EXPECT_TRUE(f.params[5].list);
  EXPECT_GT(f.params[5].least, f.params[5].most) << "words only";

  ASSERT_EQ(f.lets.size(), 2u);
  ASSERT_EQ(f.lets[0].choices.size(), 3u);
  EXPECT_EQ(print(f.lets[0].choices[1].first), "ceil(sqrt(L))");
  ASSERT_EQ(f.requirements.size(), 1u);
  EXPECT_EQ(f.requirements[0].message, "how={how} of {L} blocks");

  ASSERT_EQ(f.objects.size(), 6u);
  EXPECT_EQ(f.objects[0].index, "l");
  ASSERT_EQ(f.objects[0].choices.size(), 2u);
  EXPECT_EQ(f.objects[0].choices[0].values[0].word, "kept");
  EXPECT_EQ(f.objects[0].choices[1].values[0].word, "recomputed");
  EXPECT_EQ(print(*f.objects[0].choices[0].when), "l mod k == 0 or l in keep");
  EXPECT_EQ(print(*f.objects[0].choices[1].when), "half >= 1");
  EXPECT_FALSE(f.objects[1].choices[0].when);

  ASSERT_EQ(f.objects[1].selector.size(), 2u);
  EXPECT_FALSE(f.objects[1].selector[0].negated);
  EXPECT_TRUE(f.objects[1].selector[1].negated);
  EXPECT_EQ(f.objects[1].selector[1].kind, Clause::Kind::kInside);
  EXPECT_EQ(f.objects[1].choices[0].values[0].attribute, "precision");
  EXPECT_EQ(f.objects[2].selector[1].kind, Clause::Kind::kOf);
  EXPECT_TRUE(f.objects[2].unless.made_here);
  EXPECT_FALSE(f.objects[2].unless.made);
  EXPECT_EQ(f.objects[3].choices[0].values[0].attribute, "parts");
  EXPECT_EQ(print(f.objects[3].choices[0].values[0].number[0]), "2*n");
  EXPECT_EQ(f.objects[4].choices[0].values[0].attribute, "tier");
  EXPECT_EQ(f.objects[5].selector[2].kind, Clause::Kind::kOutside);
  EXPECT_EQ(f.objects[5].choices[0].values[0].attribute, "placement/data");
  EXPECT_EQ(f.objects[5].choices[0].values[0].word, "sharded");

  ASSERT_EQ(f.morphisms.size(), 1u);
  const MorphismRule& m = f.morphisms[0];
  EXPECT_EQ(m.result, "y");
  EXPECT_EQ(m.op, "linear");
  EXPECT_EQ(m.operands, (std::vector<std::string>{"x", "W"}));
  ASSERT_EQ(m.where.size(), 3u);
  EXPECT_EQ(m.where[0].variable, "W");
  EXPECT_EQ(m.where[1].word, "chain");
  EXPECT_EQ(m.where[2].word, "on");
  EXPECT_EQ(print(m.replacement), "y + rate*linear(x, width(y), name=extra)");
}

// The mistake's place, and what the sentence has to say.
struct Mistake {
  std::string text, place, said;
};

TEST(FunctorText, EveryMistakeNamesItsPlace) {
  const std::vector<Mistake> mistakes = {
      {"", "1:1", "'functor'"},
      {"# only a comment\n", "2:1", "'functor'"},
      {"funktor f:\n", "1:1", "wanted 'functor' to begin a functor, found 'funktor'"},
      {"functor 3:\n", "1:9", "the name of the functor"},
      {"functor f(k\n  law exact\n", "2:3", "wanted ')'"},
      {"functor f(k, k):\n", "1:14", "parameter 'k' is there twice"},
      {"functor f(k = ):\n", "1:15", "found ')'"},
      {"functor f(k: 3):\n", "1:14", "count, number, list, text or a word"},
      {"functor f(k = srqt: sqrt | block):\n", "1:15", "did you mean 'sqrt'?"},
      {"functor f(k = 0):\n", "1:15", "at least 1"},
      {"functor f(k = 1.5):\n", "1:15", "whole number"},
      {"functor f(k = k):\n", "1:15", "there is no number or word 'k'"},
      {"functor f(a = b, b = a):\n", "1:15", "there is no number or word 'b'"},
      {"functor f(a = [1, 2]):\n", "1:15", "is one value"},
      {"functor f\n  law exact\n", "1:10", "wanted ':'"},
      {"functor f: law exact\n", "1:12", "the end of the line"},
      {"functor f:\nlaw exact\n", "2:1", "indented"},
      {"functor f:\n  law exactly\n", "2:7",
       "wanted exact, reassociating or approximating, found 'exactly'"},
      {"functor f:\n  law exact\n  law exact\n", "3:3", "twice"},
      {"functor f:\n  object input -> host\n", "3:1", "a line 'law exact'"},
      {"functor f:\n  law exact\n  object x_l in chain -> kept when l == 1, or \"so\"\n", "3:47",
       "wanted 'refuse' and a sentence"},
      {"functor f:\n  law exact\n  object x_l in chain -> kept, or refuse \"{kpet}\"\n", "3:42",
       "did you mean 'kept'?"},
      {"functor f:\n  law exact\n  object activation -> kept, or refuse \"so\"\n", "3:33",
       "only a rule about x_l in chain may refuse"},
      {"functor f:\n  law exact\n", "3:1", "a rule"},
      {with_lines("  lwa exact\n"), "3:3",
       "wanted law, elsewhere, default, let, require, mesh, order, object, morphism or state"},
      {with_lines("  mesh = 2\n"), "3:8", "wanted an axis of the mesh"},
      {with_lines("  mesh data 2\n"), "3:13", "wanted '='"},
      {with_lines("  mesh data = m\n"), "3:15", "there is no number or word 'm'"},
      {with_lines("  mesh data = 2\n  mesh data = 3\n"), "4:3", "the mesh has 'data' twice"},
      {with_lines("  object input -> sharded along sampels over data\n"), "3:33",
       "wanted an axis of the object (samples, positions, heads, classes, out, in), found "
       "'sampels'; did you mean 'samples'?"},
      {with_lines("  object input -> sharded along samples data\n"), "3:41", "wanted 'over'"},
      {with_lines("  object -> bf16\n"), "3:10", "what an object is"},
      {with_lines("  object activatoin -> bf16\n"), "3:10", "did you mean 'activation'?"},
      {with_lines("  object parameter, attention -> bf16\n"), "3:21",
       "state), found 'attention'; did you mean 'of attention'?"},
      {with_lines("  object inside blok -> bf16\n"), "3:17", "did you mean 'block'?"},
      {with_lines("  object parameter of nrom -> bf16\n"), "3:23", "did you mean 'norm'?"},
      {with_lines("  object inside k -> bf16\n"), "3:17", "found 'k', a number"},
      {with_lines("  object activation bf16\n"), "3:21", "wanted what an object is"},
      {with_lines("  object activation\n"), "4:1", "wanted '->'"},
      {with_lines("  object activation -> bf61\n"), "3:24", "did you mean 'bf16'?"},
      {with_lines("  object activation ->\n"), "3:23", "what it becomes"},
      {with_lines("  object activation -> sharded data\n"), "3:32", "'over'"},
      {with_lines("  object input -> in k\n"), "3:23", "'parts'"},
      {with_lines("  object input -> in m parts\n"), "3:22", "there is no number or word 'm'"},
      {with_lines("  object xx_l in chain -> kept\n"), "3:10", "found 'xx_l'"},
      {with_lines("  object x_ll in chain -> kept\n"), "3:10", "wanted x_l"},
      {with_lines("  object x_l of chain -> kept\n"), "3:14", "'in chain'"},
      {with_lines("  object x_l in chain -> kept when m == 0\n"), "3:36", "'m'"},
      {with_lines("  require l == 0, else \"no\"\n"), "3:11", "there is no number or word 'l'"},
      {with_lines("  let m = l\n"), "3:11", "there is no number or word 'l'"},
      {with_lines("  object input -> host when not\n"), "3:32", "found the end of the line"},
      {with_lines("  object input -> host when not l\n"), "3:33", "wanted a comparison"},
      {with_lines("  object input -> host when (l == 0\n"), "4:1", "wanted ')'"},
      {with_lines("  object input -> host when (l == 0 or k)\n"), "3:40", "wanted a comparison"},
      {with_lines("  object input -> host when (l + 1 == 0\n"), "4:1", "wanted ')'"},
      {with_lines("  object input -> host when l mod == 0\n"), "3:35", "a name, a number"},
      {with_lines("  morphism y = linear(x, W) when -> y\n"), "3:34", "a name, a number"},
      {with_lines("  morphism y = linear(x, W) when l > m -> y\n"), "3:38",
       "there is no number or word 'm'"},
      {with_lines("  object input -> host when k\n"), "3:29", "wanted a comparison"},
      {with_lines("  object input -> host when k - 1\n"), "3:29", "found 'k - 1'"},
      {with_lines("  object input -> host when k > 1 when k > 2\n"), "3:29", "wanted a comparison"},
      {with_lines("  object input -> host when k = 2\n"), "3:29", "wanted a comparison"},
      {with_lines("  object input -> host when k == 2, device\n"), "3:37", "'else'"},
      {with_lines("  object parameter -> frozen unless here\n"), "3:37",
       "'made', 'made here' or 'trained'"},
      {with_lines("  object parameter -> frozen unless made or here\n"), "3:45", "'trained'"},
      {with_lines("  object parameter -> trained unless trained\n"), "3:38", "or 'frozen'"},
      {with_lines("  object parameter -> bf16 unless frozen\n"), "3:35",
       "wanted 'made', 'made here' after 'unless'"},
      {with_lines("  object parameter -> rate\n"), "3:27", "a name, a number"},
      {with_lines("  object parameter -> rate m\n"), "3:28", "there is no number or word 'm'"},
      {with_lines("  object parameter -> rate 1 and rate 2\n"), "3:34",
       "one rule says 'rate 1' and 'rate 2' of an object"},
      {with_lines("  object parameter -> rate 1 and when k > 1\n"), "3:34",
       "wanted what an object can become"},
      {with_lines("  object parameter -> rate 1, decay 0\n"), "3:31", "'else'"},
      {with_lines("  object parameter -> optimizer adam\n"), "3:33", "did you mean 'adamw'?"},
      {with_lines("  object parameter -> optimizer k\n"), "3:33", "found 'k', a number"},
      {with_lines("  object parameter -> optimizer how\n", "functor f(how: several | sgd)"), "3:33",
       "wanted one optimizer"},
      {with_lines("  object parameter -> clipped apart\n"), "3:31", "'as'"},
      {with_lines("  object parameter -> clipped as 3\n"), "3:34", "the name of a group"},
      {with_lines("  object trained -> bf16 stochastically\n"), "3:26", "the end of the line"},
      {with_lines("  object parameter made hear -> frozen\n"), "3:25", "found 'hear'"},
      {with_lines("  morphism y = linear(x, W) where not made -> y\n"), "3:44",
       "'(' and an operand after 'made'"},
      {with_lines("  object parameter made here as -> frozen\n"), "3:33", "the name of what"},
      {with_lines("  morphism y = linear(x, W) where made here -> y\n"), "3:35",
       "found 'made here'"},
      {with_lines("  let k = 3\n"), "3:7", "'k' is already the name of something"},
      {with_lines("  let L = 3\n"), "3:7", "'L' is already the name of something"},
      {with_lines("  let m 3\n"), "3:9", "wanted '='"},
      {with_lines("  let m = 1 when k == 2, 3\n"), "3:26", "'else'"},
      {with_lines("  let m = cieling(k)\n"), "3:11", "'cieling'"},
      {with_lines("  let m = 2*ceil(kk/3)\n"), "3:18", "did you mean 'k'?"},
      {with_lines("  require k > 0\n"), "3:16", "wanted ','"},
      {with_lines("  require k > 0, \"no\"\n"), "3:18", "'else'"},
      {with_lines("  require k > 0, else no\n"), "3:23", "to begin a text"},
      {with_lines("  require k > 0, else \"no\n"), "3:26", "to end the text"},
      {with_lines("  require k > 0, else \"no {kk}\"\n"), "3:23", "did you mean 'k'?"},
      {with_lines("  require k > 0, else \"no {k\"\n"), "3:23", "between '{' and '}'"},
      {with_lines("  morphism linear(x, W) -> x\n"), "3:18", "wanted '='"},
      {with_lines("  morphism y = lineer(x, W) -> y\n"), "3:16", "did you mean 'linear'?"},
      {with_lines("  morphism y = linear(x, x) -> y\n"), "3:26", "'x' is there twice"},
      {with_lines("  morphism y = linear(x, y) -> y\n"), "3:26", "'y' is there twice"},
      {with_lines("  morphism y = linear() -> y\n"), "3:23", "the name of an operand"},
      {with_lines("  morphism y = linear(x, W) y\n"), "3:29", "wanted '->'"},
      {with_lines("  morphism y = linear(x, W) ->\n"), "3:31", "found the end of the line"},
      {with_lines("  morphism y = linear(x, W) where parameter -> y\n"), "3:35",
       "wanted what a morphism is"},
      {with_lines("  morphism y = linear(x, W) where attention_in(W) -> y\n"), "3:35",
       "wanted what an operand is"},
      {with_lines("  morphism y = linear(x, W) where parameter(V) -> y\n"), "3:45",
       "there is no operand 'V'"},
      {with_lines("  morphism y = linear(x, W) where atention -> y\n"), "3:35",
       "did you mean 'attention'?"},
      {with_lines("  object parameter of on -> frozen\n", "functor f(on: several | norms)"), "3:23",
       "did you mean 'norm'?"},
  };
  for (const Mistake& m : mistakes) {
    const std::string said = error_text([&] { read(m.text); });
    EXPECT_TRUE(said.starts_with("my.functor:" + m.place + ": ")) << m.text << "\n" << said;
    EXPECT_TRUE(has(said, m.said)) << m.text << "\n" << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(FunctorText, HowParametersAreTrained) {
  const FunctorText f = read(with_lines(
      "  object parameter not made here as b -> rate pow(0.5, l) and decay 0 and optimizer how and "
      "clipped as mine when l < k, else frozen\n",
      "functor f(k = 2, how = sgd: sgd | adamw)"));
  const ObjectRule& rule = f.objects[0];
  EXPECT_EQ(rule.selector[1].kind, Clause::Kind::kMadeHere);
  EXPECT_EQ(rule.selector[1].word, "b");
  EXPECT_TRUE(rule.selector[1].negated);
  EXPECT_TRUE(rule.by_block);
  std::vector<std::string> values;
  for (const AttributeValue& value : rule.choices[0].values) values.push_back(print(value));
  EXPECT_EQ(values, (std::vector<std::string>{"rate pow(0.5, l)", "decay 0", "optimizer how",
                                              "clipped as mine"}));
  EXPECT_EQ(print(rule.choices[1].values[0]), "frozen");
}

TEST(FunctorText, WhatARuleLeavesAlone) {
  const auto unless = [](const std::string& line) {
    return read(with_lines("  object parameter -> " + line + "\n")).objects[0].unless;
  };
  EXPECT_TRUE(unless("frozen unless made or trained").made);
  EXPECT_TRUE(unless("frozen unless made or trained").yields);
  EXPECT_FALSE(unless("frozen unless made or trained").made_here);
  EXPECT_TRUE(unless("frozen unless made when k > 1").made);
  EXPECT_FALSE(unless("frozen unless made when k > 1").yields);
  EXPECT_TRUE(unless("trained unless frozen").yields);
  EXPECT_TRUE(unless("kept unless recomputed").yields);
  const FunctorText f =
      read(with_lines("  morphism y = linear(x, W) where parameter(W), not made(W) -> 2*y\n"));
  EXPECT_EQ(f.morphisms[0].where[1].kind, Clause::Kind::kMade);
  EXPECT_EQ(f.morphisms[0].where[1].variable, "W");
  EXPECT_TRUE(f.morphisms[0].where[1].negated);
}

TEST(FunctorText, ConditionsJoinAndNest) {
  const auto condition = [](const std::string& text) {
    const FunctorText f = read(with_lines("  object activation -> kept when " + text + "\n"));
    return print(*f.objects[0].choices[0].when);
  };
  EXPECT_EQ(condition("(l + 1) mod 2 == 2*k - 1"), "(l + 1) mod 2 == 2*k - 1");
  EXPECT_EQ(condition("l + 1 mod 2 == 0"), "l + 1 mod 2 == 0") << "mod binds as * does";
  EXPECT_EQ(condition("not l == 0 and k > 1"), "not l == 0 and k > 1");
  EXPECT_EQ(condition("not (l == 0 or l == L - 1)"), "not (l == 0 or l == L - 1)");
  EXPECT_EQ(condition("(l == 0 or\n  l == 1) and (k > 1)"), "(l == 0 or l == 1) and k > 1");
  EXPECT_EQ(condition("((l)) == 0"), "l == 0");
  EXPECT_EQ(condition("l in [1, k]"), "l in [1, k]");
}

// Of a rule that names the block, or a number of the functor's own that is called l.
TEST(FunctorText, ARuleSpeaksOfTheBlockOrNot) {
  const auto rule = [](const std::string& line, const std::string& head = "functor f(k = 2)") {
    return read(with_lines(line + "\n", head));
  };
  EXPECT_TRUE(rule("  object activation -> kept when l < k").objects[0].by_block);
  EXPECT_FALSE(rule("  object activation -> kept when L < k").objects[0].by_block);
  EXPECT_FALSE(rule("  object x_l in chain -> kept when l < k").objects[0].by_block);
  EXPECT_FALSE(
      rule("  object activation -> kept when l < 3", "functor f(l = 2)").objects[0].by_block);
  EXPECT_TRUE(rule("  morphism y = gelu(x) when l == 0 -> x").morphisms[0].by_block);
  EXPECT_TRUE(rule("  morphism y = gelu(x) -> (l + 1) * x").morphisms[0].by_block);
  EXPECT_FALSE(rule("  morphism y = gelu(l) -> 2 * l").morphisms[0].by_block);
}

TEST(FunctorText, AByteOrderMarkAndWindowsLinesAreNoMistakes) {
  const FunctorText f =
      read("\xef\xbb\xbf# What.\r\nfunctor f:\r\n  law exact\r\n  object input -> host\r\n");
  EXPECT_EQ(f.summary, "What.");
  EXPECT_EQ(f.objects.size(), 1u);
}

TEST(FunctorText, TheBuiltInTextsAreShort) {
  EXPECT_GE(functor_files().size(), 6u);
  for (const FunctorFile& file : functor_files()) {
    EXPECT_LE(std::count(file.text.begin(), file.text.end(), '\n'), 15) << file.name;
    const FunctorText f = parse_functor_text(file.text, file.name);
    EXPECT_EQ(f.name + ".functor", file.name);
    EXPECT_FALSE(f.summary.empty()) << file.name;
  }
}

// Cuts, flips and repeats of the built-in texts: a functor or an Error that names the file.
TEST(FunctorText, FuzzedTextsGiveAFunctorOrAnError) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int parsed = 0, refused = 0;
  for (const FunctorFile& file : functor_files()) {
    for (int round = 0; round < 1500; ++round) {
      std::string text(file.text);
      for (size_t i = 0, n = 1 + below(3); i < n && !text.empty(); ++i) {
        const size_t at = below(text.size());
        switch (below(4)) {
          case 0:
            text.resize(at);
            break;
          case 1:
            text[at] = static_cast<char>(below(256));
            break;
          case 2:
            text.erase(at, 1 + below(8));
            break;
          default:
            text.insert(at, text.substr(below(text.size()), 1 + below(12)));
        }
      }
      const std::string said = error_text([&] { parse_functor(text, "fuzz"); });
      EXPECT_TRUE(said.empty() || said.starts_with("fuzz:")) << said << "\n" << text;
      ++(said.empty() ? parsed : refused);
    }
  }
  EXPECT_GT(parsed, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace adjoint
