#include "scheme/document.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace adjoint {
namespace {

Term name(std::string word) { return {.kind = Term::Kind::kName, .word = std::move(word)}; }
Term number(double n) { return {.kind = Term::Kind::kNumber, .number = n}; }
Term binary(const char* op, Term a, Term b) {
  return {.kind = Term::Kind::kBinary, .word = op, .args = {std::move(a), std::move(b)}};
}
Term negate(Term a) { return {.kind = Term::Kind::kNegate, .args = {std::move(a)}}; }
Term call(const char* op, std::vector<Term> args) {
  return {.kind = Term::Kind::kCall, .word = op, .args = std::move(args)};
}

TEST(Term, BindsAsPeopleExpect) {
  const auto is = [](const char* text, const Term& wanted) {
    EXPECT_EQ(parse_term(text, "t"), wanted)
        << text << " was read as " << print(parse_term(text, "t"));
  };
  is("a + b*c", binary("+", name("a"), binary("*", name("b"), name("c"))));
  is("(a + b)*c", binary("*", binary("+", name("a"), name("b")), name("c")));
  is("a - b - c", binary("-", binary("-", name("a"), name("b")), name("c")));
  is("a - (b - c)", binary("-", name("a"), binary("-", name("b"), name("c"))));
  is("a/b*c", binary("*", binary("/", name("a"), name("b")), name("c")));
  is("-a*b", binary("*", negate(name("a")), name("b")));
  is("a - -1", binary("-", name("a"), negate(number(1))));
  is("sqrt(2*n)", call("sqrt", {binary("*", number(2), name("n"))}));
  is("f()", call("f", {}));
  is("a < b + c and d",
     binary("and", binary("<", name("a"), binary("+", name("b"), name("c"))), name("d")));
  is("a or b and c", binary("or", name("a"), binary("and", name("b"), name("c"))));
  is("a mod b*c", binary("*", binary("mod", name("a"), name("b")), name("c")));
  is("\"a b\"", {.kind = Term::Kind::kText, .word = "a b"});

  Term repeated = call("block", {name("x")});
  repeated.repeat = {name("layers")};
  is("block^layers(x)", repeated);
  repeated.repeat = {binary("-", name("layers"), number(1))};
  is("block^(layers - 1)(x)", repeated);

  Term named = call("linear", {name("x"), number(3)});
  named.keywords = {{"bias", name("no")},
                    {"weight", {.kind = Term::Kind::kWhen, .args = {name("wte"), name("tied")}}}};
  is("linear(x, 3, bias=no, weight=wte when tied)", named);
  is("linear(x,  # the input\n 3, bias=no,\n\n weight=wte when tied\n)", named);
}

TEST(Term, PrintsOnlyTheBracketsItNeeds) {
  for (const char* text : {"a + b*c",
                           "(a + b)*c",
                           "a - b - c",
                           "a - (b - c)",
                           "a/b*c",
                           "a/(b*c)",
                           "-a*b",
                           "-(a + b)",
                           "--a",
                           "a - -1",
                           "3*hidden",
                           "normal(0.02/sqrt(2*layers))",
                           "block^layers(dropout(x))",
                           "block^(ceil(layers/2))(x)",
                           "block^2(x, y)",
                           "f(x, y=1 + 2, z=a when b)",
                           "1e-05",
                           "1e+22",
                           "\"a text\"",
                           "f(g(h()), -x)",
                           "l mod 2 == 0",
                           "l in [2, 5] and not (a in b) == c",
                           "(a == b) == c",
                           "a mod (b mod c)*d",
                           "a < b and not c >= d or e != f",
                           "(a or b) and c",
                           "not (a and b)",
                           "x when l < 2 else y when l == 3 else z",
                           "(x when a else y) + 1",
                           "x when (a when b else c) else d",
                           "f(x when a else y, z=w when b)"}) {
    EXPECT_EQ(print(parse_term(text, "t")), text);
  }
}

constexpr std::string_view kText = R"(# a model
axes a=1 b=2*a
numbers eps=1e-5   # small
axes c=b/a

preset big-1.5: a=3 eps=0
preset plain:

box x[batch, a], y f32, z bf16[a*b]:
  p, q = f(x), g(y, z)  # two

  r = p + q

model tokens[batch, seq]:
	x = box^a(tokens,
            tokens, tokens)
)";

TEST(Document, HoldsWhatWasWritten) {
  const Document document = parse_document(kText, "a.scheme");
  ASSERT_EQ(document.axes.size(), 3u);
  EXPECT_EQ(document.axes[1].name, "b");
  EXPECT_EQ(document.axes[1].value, binary("*", number(2), name("a")));
  EXPECT_EQ(document.axes[2].name, "c");
  ASSERT_EQ(document.numbers.size(), 1u);
  EXPECT_EQ(document.numbers[0].value, number(1e-5));
  ASSERT_EQ(document.presets.size(), 2u);
  EXPECT_EQ(document.presets[0].name, "big-1.5");
  EXPECT_EQ(document.presets[0].settings.size(), 2u);
  EXPECT_TRUE(document.preset("plain")->settings.empty());
  EXPECT_EQ(document.preset("none"), nullptr);

  ASSERT_EQ(document.boxes.size(), 2u);
  const Box& box = *document.box("box");
  ASSERT_EQ(box.formals.size(), 3u);
  EXPECT_EQ(box.formals[0].axes, (std::vector<Term>{name("batch"), name("a")}));
  EXPECT_EQ(box.formals[0].dtype, std::nullopt);
  EXPECT_EQ(box.formals[1].dtype, Dtype::kF32);
  EXPECT_TRUE(box.formals[1].axes.empty());
  EXPECT_EQ(box.formals[2].dtype, Dtype::kBF16);
  ASSERT_EQ(box.body.size(), 2u);
  EXPECT_EQ(box.body[0].names, (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(box.body[0].values.size(), 2u);
  EXPECT_EQ(box.body[1].at.line, 12);
  EXPECT_EQ(document.box("model")->body[0].values[0].args.size(), 3u);
  EXPECT_EQ(document.box("nothing"), nullptr);
}

TEST(Document, PrintsAndParsesBack) {
  const Document document = parse_document(kText, "a.scheme");
  const std::string text = print(document);
  EXPECT_EQ(parse_document(text, "a.scheme"), document);
  EXPECT_EQ(print(parse_document(text, "a.scheme")), text);
  EXPECT_EQ(text,
            "axes a=1 b=2*a c=b/a\n"
            "numbers eps=1e-05\n"
            "preset big-1.5: a=3 eps=0\n"
            "preset plain:\n"
            "\n"
            "box x[batch, a], y f32, z bf16[a*b]:\n"
            "  p, q = f(x), g(y, z)\n"
            "  r = p + q\n"
            "\n"
            "model tokens[batch, seq]:\n"
            "  x = box^a(tokens, tokens, tokens)\n");
}

TEST(Document, WindowsLineEndsAreLineEnds) {
  EXPECT_EQ(parse_document("axes a=1\r\nmodel x:\r\n  y = x\r\n", "a"),
            parse_document("axes a=1\nmodel x:\n  y = x\n", "a"));
}

TEST(Document, PlacesDoNotMatter) {
  EXPECT_EQ(parse_document("model x:\n  y = x", "a"),
            parse_document("\n\nmodel   x :\n\n      y=x # same\n", "b"));
}

TEST(Document, Refusals) {
  const std::string model = "model x:\n  y = x\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "a:1:1: wanted a box named 'model', found the end of the text"},
      {"  axes a=1\n" + model, "a:1:3: wanted a line that begins a section, found an indent"},
      {"axes a\n" + model,
       "a:1:7: wanted '=' after the name of a setting, found the end of the line"},
      {"axes a=\n" + model, "a:1:8: wanted a name, a number or '(', found the end of the line"},
      {"axes a=1 a=2\n" + model, "a:1:10: 'a' is set twice"},
      {"axes a=1\naxes a=2\n" + model, "a:2:6: 'a' is set twice"},
      {"axes a=1 = 2\n" + model, "a:1:10: wanted the name of a setting, found '='"},
      {"preset : a=1\n" + model, "a:1:8: wanted the name of a preset, found ':'"},
      {"preset p a=1\n" + model, "a:1:10: wanted ':' after the name of a preset, found 'a'"},
      {"preset p:\npreset p:\n" + model, "a:2:8: preset 'p' is written twice"},
      {"preset p: a=1 a=2\n" + model, "a:1:15: 'a' is set twice"},
      {model + model, "a:3:1: box 'model' is written twice"},
      {"3\n",
       "a:1:1: wanted 'axes', 'numbers', 'preset', 'format' or the name of a box, "
       "found '3'"},
      {"format huggingface:\n" + model, "a:1:19: wanted '\"' to begin a text, found ':'"},
      {"format huggingface \"A\":\n" + model, "a:1:8: this format names no module"},
      {"format huggingface \"A\":\n  fields a = b\n" + model,
       "a:2:3: wanted 'field', 'module', 'ignore' or 'set', found 'fields'"},
      {"format huggingface \"A\":\n  field a b\n" + model,
       "a:2:11: wanted '=' after the name of a field, found 'b'"},
      {"format huggingface \"A\":\n  field a = b sometimes\n" + model,
       "a:2:15: wanted 'as', 'whole', 'from', 'null', 'else', 'if', 'unwritten' or the end of the "
       "line, found 'sometimes'"},
      {"format huggingface \"A\":\n  field a = b\n  field c or a = d\n" + model,
       "a:3:9: field 'a' is written twice"},
      {"format huggingface \"A\":\n  field a[i < 3] = b\n" + model,
       "a:2:11: wanted 'l', which counts the entries of a list, found 'i'"},
      {"format huggingface \"A\":\n  module \"a\" = \"b\"\n  module \"a\" = \"c\"\n" + model,
       "a:3:10: module 'a' is written twice"},
      {"format huggingface \"A\":\n  module \"a\" = \"b\"\nformat huggingface \"B\" \"A\":\n"
       "  module \"a\" = \"b\"\n" +
           model,
       "a:3:8: the huggingface format of \"A\" is written twice"},
      {"model:\n  y = x\n", "a:1:6: wanted the name of an object, found ':'"},
      {"model x\n  y = x\n", "a:1:8: wanted ':' after the head of a box"},
      {"model x f31[a]:\n  y = x\n", "a:1:9: wanted a dtype or '[', found 'f31'"},
      {"model x[a:\n  y = x\n", "a:1:10: wanted ']' after the axes of an object, found ':'"},
      {"model x[]:\n  y = x\n", "a:1:9: wanted a name, a number or '(', found ']'"},
      {"model x: y = x\n", "a:1:10: wanted the end of the line, found 'y'"},
      {"model x:\n", "a:1:1: box 'model' has no statement"},
      {"model x:\ny = x\n", "a:1:1: box 'model' has no statement"},
      {"model x:\n  3 = x\n", "a:2:3: wanted the name of a result, found '3'"},
      {"model x:\n  y x\n", "a:2:5: wanted '=' after the names of the results, found 'x'"},
      {"model x:\n  y = \n", "a:2:7: wanted a name, a number or '(', found the end of the line"},
      {"model x:\n  y = x x\n", "a:2:9: wanted the end of the line, found 'x'"},
      {"model x:\n  y = x +\n", "a:2:10: wanted a name, a number or '('"},
      {"model x:\n  y = f(x\n", "a:3:1: wanted ')' or ',' after an argument"},
      {"model x:\n  y = f(x,)\n", "a:2:11: wanted a name, a number or '(', found ')'"},
      {"model x:\n  y = f(x y)\n", "a:2:11: wanted ')' or ',' after an argument, found 'y'"},
      {"model x:\n  y = (x\n", "a:3:1: wanted ')' to close the bracket"},
      {"model x:\n  y = f^2 x\n",
       "a:2:11: wanted '(' after a repetition (powers are pow(x, 2)), found 'x'"},
      {"model x:\n  y = f^\"a\"(x)\n", "a:2:9: wanted how often to repeat, found '\"'"},
      {"model x:\n  y = f(a=1, a=2)\n", "a:2:14: 'a' is given twice"},
      {"model x:\n  y = f(a=1, x)\n", "a:2:14: wanted name=value"},
      {"model x:\n  y = f(1=2)\n", "a:2:10: wanted ')' or ',' after an argument, found '='"},
      {"model x:\n  y = f(x when z otherwise y)\n",
       "a:2:18: wanted ')' or ',' after an argument, found 'otherwise'"},
      {"model x:\n  y = f(a=x when)\n", "a:2:17: wanted a name, a number or '(', found ')'"},
      {"model x:\n  y = x when z else\n", "a:2:20: wanted a name, a number or '('"},
      {"model x:\n  y = x < 2 < 3\n", "a:2:13: wanted the end of the line, found '<'"},
      {"model x:\n  y = not\n", "a:2:10: wanted a name, a number or '('"},
      {"model x:\n  y = x and\n", "a:2:12: wanted a name, a number or '('"},
      {"model x:\n  y = \"a\n", "a:2:9: wanted '\"' to end the text, found the end of the line"},
      {"model x:\n  y = @\n", "a:2:7: wanted a name, a number or '(', found '@'"},
  };
  for (const auto& [text, wanted] : cases) {
    const std::string found = error_text([&] { parse_document(text, "a"); });
    EXPECT_EQ(found.substr(0, std::string(wanted).size()), wanted) << text;
  }
}

TEST(Document, RefusesWhatWouldEndTheStack) {
  const auto said = [](const std::string& term) {
    return error_text([&] { parse_document("model x:\n  y = " + term + "\n", "a"); });
  };
  const auto many = [](const char* part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  EXPECT_TRUE(has(said(many("(", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("f(", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("-", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("f^(", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("not ", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("x when y else ", 100000)), "nested too deeply"));
  EXPECT_TRUE(has(said(many("x+", 100000) + "x"), "too long"));
  EXPECT_TRUE(has(said(many("(", 150) + "x" + many("+x+x+x+x+x*x)", 150)), "too long"));
  EXPECT_EQ(said(many("x+", 400) + "x"), "");
  EXPECT_EQ(said(many("f(", 150) + "x" + many(")", 150)), "");
}

}  // namespace
}  // namespace adjoint
