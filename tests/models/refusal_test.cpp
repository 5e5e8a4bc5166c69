// What is wrong in a model's text or settings is refused in one sentence that names the place.
#include <random>

#include "base/error_text.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

struct Refusal {
  const char* text;  // after the first line, which has the axes
  std::vector<const char*> parts;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.text; }

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, NamesThePlaceAndWhatIsWrong) {
  const std::string text =
      std::string("axes hidden=6 heads=4 context=8 vocab=5 one=1\n") + GetParam().text;
  const std::string found = error_text([&] { elaborate_text(text); });
  EXPECT_NE(found, "") << "this was not refused:\n" << text;
  for (const char* part : GetParam().parts) EXPECT_TRUE(has(found, part)) << found;
}

// A name that cannot be seen from there is not offered, nor the word itself.
TEST(Refusals, OfferNoNameThatCannotBeSeen) {
  const auto refusal = [](const char* weights) {
    return error_text([&] {
      elaborate_text(std::string("axes hidden=6 heads=4 context=8 vocab=5\n"
                                 "inner x:\n  x = rms_norm(x, name=scales)\n"
                                 "model t[batch, seq]:\n  x = inner(embed(t, vocab))\n"
                                 "  y = rms_norm(x, weights=") +
                     weights + ")\n");
    });
  };
  for (const char* weights : {"scales", "scale"}) {
    const std::string found = refusal(weights);
    EXPECT_TRUE(found.ends_with("above whose weights it could have")) << found;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Refused,
    testing::Values(
        Refusal{"axes hidden=7\nmodel x:\n  y = x\n", {"my.scheme:2:6", "'hidden' is set twice"}},
        Refusal{"numbers hidden=7\nmodel x:\n  y = x\n",
                {"my.scheme:2:9: ", "'hidden' is both an axis and a number"}},
        Refusal{"axes dim=hidden/heads\nmodel x:\n  y = x\n",
                {"my.scheme:2:6: ", "'dim'", "whole number", "hidden/heads = 1.5"}},
        Refusal{"axes n=0\nmodel x:\n  y = x\n", {"my.scheme:2:6: ", "'n'", "found 0"}},
        Refusal{"axes n=-1\nmodel x:\n  y = x\n", {"my.scheme:2:6: ", "'n'", "-1"}},
        Refusal{"axes n=2000000000000\nmodel x:\n  y = x\n", {"my.scheme:2:6: ", "2^40"}},
        Refusal{"axes n=hiden\nmodel x:\n  y = x\n",
                {"my.scheme:2:8: ", "no axis or number 'hiden'", "did you mean 'hidden'?"}},
        Refusal{"axes a=b b=c c=a\nmodel x:\n  y = x\n", {"my.scheme:2:6: ", "defined by itself"}},
        Refusal{"numbers n=1/(one - one)\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "1/(one - one) is inf", "finite"}},
        Refusal{"numbers n=sqrt(-1)\nmodel x:\n  y = x\n", {"my.scheme:2:11: ", "sqrt(-1)"}},
        Refusal{"numbers n=pow(2)\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "pow: wants two numbers, found pow(2)"}},
        Refusal{"numbers n=3 mod 0\nmodel x:\n  y = x\n", {"my.scheme:2:11: ", "3 mod 0 is "}},
        Refusal{"numbers n=sqrt(1, 2)\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "sqrt: wants one"}},
        Refusal{"numbers n=min(1)\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "min: wants numbers"}},
        Refusal{"numbers n=srqt(1)\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "call of 'srqt'", "did you mean 'sqrt'?"}},
        Refusal{"numbers n=\"1\"\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "wanted a number, found \"1\""}},
        Refusal{"preset p: hiden=3\nmodel x:\n  y = x\n",
                {"my.scheme:2:11: ", "preset p", "'hiden'", "did you mean 'hidden'?"}}));

INSTANTIATE_TEST_SUITE_P(
    WordsOfOtherLibraries, Refused,
    testing::Values(
        Refusal{"model x:\n  y = matmul(x, x)\n",
                {"my.scheme:3:7: ", "matmul: there is no such op or box; here it is 'contract'"}},
        Refusal{"model x:\n  y = clamp(x, 0, 1)\n", {"here it is 'minimum' of a 'maximum'"}},
        Refusal{"model x:\n  y = rms_nrom(x)\n", {"did you mean 'rms_norm'?"}},
        Refusal{"model x:\n  y = geul(x)\n", {"did you mean 'gelu'?"}},
        Refusal{"model x:\n  y = x**2\n",
                {"my.scheme:3:8: wanted '*' once, found '**'; powers are pow(x, 2)"}},
        Refusal{"model x:\n  y = x^2\n", {"my.scheme:3:10: ", "powers are pow(x, 2)"}},
        Refusal{"model x:\n  x += x\n",
                {"my.scheme:3:5: wanted '=' after the names of the results, found '+='; write x = "
                 "x + ..."}},
        Refusal{"model x:\n  if x > 0:\n    y = x\n",
                {"my.scheme:3:3: wanted the name of a result, found 'if'; a choice is a value: y "
                 "= a when condition else b"}},
        Refusal{"model x:\n  y = x if one == 1 else -x\n",
                {"my.scheme:3:9: wanted 'when', found 'if'; a choice is written a when condition "
                 "else b"}},
        Refusal{"model x:\n  for l in heads:\n    x = gelu(x)\n",
                {"my.scheme:3:3: ", "found 'for'; repeat a box: y = box^layers(x)"}},
        Refusal{"model x:\n  return x\n",
                {"my.scheme:3:3: ", "found 'return'; a box gives what its last statement names"}}));

INSTANTIATE_TEST_SUITE_P(
    WeightsOfOps, Refused,
    testing::Values(Refusal{"model t[batch, seq]:\n  x = rms_norm(embed(t, vocab), name=a)\n"
                            "  y = gelu(x, weights=a)\n",
                            {"my.scheme:4:7: ",
                             "gelu: it reads no weights, so it cannot have those of 'a'"}},
                    Refusal{"model t[batch, seq]:\n  x = rms_norm(embed(t, vocab), name=after)\n"
                            "  y = rms_norm(x, weights=aftre)\n",
                            {"my.scheme:4:27: ", "no call 'aftre' above", "did you mean 'after'?"}},
                    Refusal{"model t[batch, seq]:\n  x = linear(embed(t, vocab), 5, name=a)\n"
                            "  y = linear(x, hidden, weights=a)\n",
                            {"my.scheme:4:7: ", "wants a parameter", "'a.weight' is"}}));

INSTANTIATE_TEST_SUITE_P(
    PowersOfNumbers, Refused,
    testing::Values(
        Refusal{"model t[batch, seq]:\n  y = pow(0 - 1, embed(t, vocab))\n",
                {"my.scheme:3:7: ", "a number to the power of an object is more than 0, found -1"}},
        Refusal{"model t[batch, seq]:\n  x = embed(t, vocab)\n  y = pow(x, x)\n",
                {"my.scheme:4:7: ", "pow: wants a number beside an object, found two objects"}}));

INSTANTIATE_TEST_SUITE_P(
    Boxes, Refused,
    testing::Values(
        Refusal{"model x f32[batch, hiden]:\n  y = x\n",
                {"my.scheme:2:20: ", "no axis or number 'hiden'", "did you mean 'hidden'?"}},
        Refusal{"model x f32[batch, x]:\n  y = x\n", {"my.scheme:2:20: ", "no axis or number 'x'"}},
        Refusal{"model x f32[batch, hidden/heads]:\n  y = x\n",
                {"my.scheme:2:20: ", "whole number", "hidden/heads = 1.5"}},
        Refusal{"model x f32[one - one]:\n  y = x\n", {"my.scheme:2:7: ", "axis without size"}},
        Refusal{"model x, x:\n  y = x\n", {"my.scheme:2:10: ", "'x' is already the name"}},
        Refusal{"model position:\n  y = position\n", {"my.scheme:2:7: ", "'position' is already"}},
        Refusal{"f x, x:\n  y = x\nmodel x:\n  y = f(x, x)\n", {"my.scheme:2:6: ", "named twice"}},
        Refusal{"f x[batch, hidden]:\n  y = x\nmodel x f32[batch, vocab]:\n  y = f(x)\n",
                {"my.scheme:5:7: ", "f: x wants [batch=1, hidden=6], found f32[batch=1, vocab=5]"}},
        Refusal{"f x f32[batch]:\n  y = x\nmodel x[batch]:\n  y = f(x)\n",
                {"my.scheme:5:7: ", "f: x wants f32[batch=1], found i32[batch=1]"}},
        Refusal{"f x f32[seq, hidden]:\n  y = linear(x, vocab)\n"
                "model x f32[seq, hidden]:\n  y = f^2(x)\n",
                {"my.scheme:5:7: ", "f: x wants f32[seq=8, hidden=6], found f32[seq=8, vocab=5]"}},
        Refusal{"f x, y:\n  z = x + y\nmodel x f32[batch]:\n  y = f(x)\n",
                {"my.scheme:5:7: ", "f: wants 2 objects (x, y), found 1"}},
        Refusal{"f x:\n  y = x\nmodel x f32[batch]:\n  y = f^(1/2)(x)\n",
                {"my.scheme:5:10: ", "how often", "1/2 = 0.5"}},
        Refusal{"f x:\n  y = x\nmodel x f32[batch]:\n  y = f^x(x)\n",
                {"my.scheme:5:9: ", "wanted a number, found the object 'x'"}},
        Refusal{"f x:\n  y = x\nmodel x f32[batch]:\n  y = f(3)\n",
                {"my.scheme:5:9: ", "f: wants objects, found the number 3"}},
        Refusal{"f x:\n  y = x\nmodel x f32[batch]:\n  y = f(x, width=3)\n",
                {"my.scheme:5:7: ", "f: there is no argument 'width'"}},
        Refusal{"f x:\n  y = g(x)\ng x:\n  y = f(x)\nmodel x:\n  y = f(x)\n",
                {"my.scheme:5:7: ", "f: a box cannot call itself"}},
        Refusal{"model x:\n  y = model(x)\n",
                {"my.scheme:3:7: ", "model: a box cannot call itself"}},
        Refusal{"f x:\n  y = 3\nmodel x f32[batch]:\n  y = f(x)\n",
                {"my.scheme:3:3: ", "f: its value must be an object, 'y' is a number"}},
        Refusal{"model x f32[batch]:\n  a, b = x\n", {"my.scheme:3:3: ", "2 names for 1 values"}},
        Refusal{"model x f32[batch]:\n  a, b = x, x, x\n", {"my.scheme:3:3: ", "2 names for 3"}},
        Refusal{"model x f32[batch]:\n  a, a = x, x\n", {"my.scheme:3:3: ", "'a' is named twice"}},
        Refusal{"f x:\n  y = x\nmodel x f32[batch]:\n  y = f^300000(x)\n",
                {"my.scheme:5:7: ", "more than 262144 calls"}},
        Refusal{"f x:\n  y = x\n", {"my.scheme:4:1: ", "wanted a box named 'model'"}}));

INSTANTIATE_TEST_SUITE_P(
    Calls, Refused,
    testing::Values(
        Refusal{"model x f32[batch, hidden]:\n  y = linaer(x, hidden)\n",
                {"my.scheme:3:7: linaer: ", "did you mean 'linear'?"}},
        Refusal{"block x:\n  y = x\nmodel x f32[batch]:\n  y = blok(x)\n",
                {"my.scheme:5:7: blok: ", "did you mean 'block'?"}},
        Refusal{"model x f32[batch]:\n  y = linear_act(x, x)\n",
                {"my.scheme:3:7: linear_act: ", "cannot be called"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, hidden, bais=no)\n",
                {"my.scheme:3:7: linear: ", "no argument 'bais'", "bias=yes", "init=normal(0.02)",
                 "did you mean 'bias'?"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x)\n",
                {"my.scheme:3:7: linear: ", "'out' is missing"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear()\n",
                {"my.scheme:3:7: linear: ", "'x' is missing"}},
        Refusal{"model x f32[batch, hidden]:\n  y = relu(x, x)\n",
                {"my.scheme:3:7: relu: ", "too many arguments"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, out=4)\n",
                {"my.scheme:3:7: linear: ", "'out' is given twice"}},
        Refusal{"model x f32[batch, hidden]:\n  y = softmax(x, causal, causal)\n",
                {"my.scheme:3:7: softmax: ", "'causal' is given twice"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(z, 3)\n",
                {"my.scheme:3:14: ", "no object or number 'z'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(3, 3)\n",
                {"my.scheme:3:14: linear: 'x' must be an object, found the number 3"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, x)\n",
                {"my.scheme:3:17: ", "wanted a number, found the object 'x'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, relu(x))\n",
                {"my.scheme:3:17: ", "wanted a number, found a call of 'relu'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, hidden/heads)\n",
                {"my.scheme:3:17: linear: 'out' must be a whole number", "hidden/heads = 1.5"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, one - one)\n",
                {"my.scheme:3:7: linear: ", "linear#1.weight", "axis without size"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, bias=maybe)\n",
                {"my.scheme:3:25: ", "wanted yes or no, found 'maybe'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, bias=2)\n",
                {"my.scheme:3:25: ", "wanted yes or no (1 or 0), found 2"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, init=0.02)\n",
                {"my.scheme:3:25: ", "wanted zeros, ones, normal(...)", "found 0.02"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, init=normal(-1))\n",
                {"my.scheme:3:25: ", "at least 0"}},
        Refusal{"model x f32[batch, hidden]:\n  y = gelu(x, 3)\n",
                {"my.scheme:3:15: gelu: 'approximate' must be a word, found 3"}},
        Refusal{"model x f32[batch, hidden]:\n  y = gelu(x, approximate=erf)\n",
                {"my.scheme:3:7: gelu: ", "tanh or none, found 'erf'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, weight=wte)\n",
                {"my.scheme:3:27: ", "no object 'wte' here, nor a call of that name"}},
        Refusal{"model t[batch, seq]:\n  x = embed(t, vocab, name=wte)\n"
                "  y = linear(x, vocab, weight=wet)\n",
                {"my.scheme:4:31: ", "'wet'", "did you mean 'wte'?"}},
        Refusal{"model t[batch, seq]:\n  x = embed(t, vocab, name=wte)\n"
                "  y = linear(x, hidden, bias=no, weight=wte)\n",
                {"my.scheme:4:7: linear: ", "[vocab=5, hidden=6]", "hidden=6"}},
        Refusal{"model x f32[batch, hidden]:\n  x = linear(x, 3, name=a)\n  y = relu(x, name=a)\n",
                {"my.scheme:4:20: relu: ", "the name 'a' is taken in model"}},
        Refusal{"model x f32[batch, hidden]:\n  y = relu(x, name=x)\n",
                {"my.scheme:3:20: relu: ", "the name 'x' is taken"}},
        Refusal{"model x f32[batch, hidden]:\n  y = relu(x, name=3)\n",
                {"my.scheme:3:20: relu: ", "plain name, found 3"}},
        Refusal{"model x f32[batch, hidden]:\n  y = relu(x, name=\"gelu#2\")\n",
                {"my.scheme:3:20: relu: ", "\"relu#2\", found \"gelu#2\""}},
        Refusal{"model x f32[batch, hidden]:\n  x = relu(x, name=\"relu#2\")\n"
                "  y = relu(x, name=\"relu#2\")\n",
                {"my.scheme:4:20: relu: ", "the name 'relu#2' is taken in model"}},
        Refusal{"model x f32[batch, hidden]:\n  y = relu^2(x)\n",
                {"my.scheme:3:7: relu: ", "only a box can be repeated"}},
        Refusal{"model x f32[batch, hidden]:\n  y = dropout(x, 1.5)\n",
                {"my.scheme:3:7: dropout: ", "1.5"}},
        Refusal{"model x f32[batch, hidden]:\n  y = \"text\"\n", {"my.scheme:3:7: ", "\"text\""}},
        Refusal{"model x f32[batch, hidden]:\n  y = linear(x, 3, bias=no when perhaps)\n",
                {"my.scheme:3:33: ", "found 'perhaps'"}}));

INSTANTIATE_TEST_SUITE_P(
    Ops, Refused,
    testing::Values(
        // Only the innermost call is named.
        Refusal{"model x f32[batch, seq, hidden]:\n  y = relu(attention(x, heads))\n",
                {"my.scheme:3:12: attention: ", "hidden=6", "4 heads of q, which with 4 of k"}},
        Refusal{"f x:\n  y = attention(x, heads, k=x, v=x)\n"
                "model x f32[batch, seq, hidden]:\n  y = f(x)\n",
                {"my.scheme:3:7: attention: ", "4 heads"}},
        Refusal{"model x f32[batch, seq, hidden]:\n  y = attention(x, heads, k=x)\n",
                {"my.scheme:3:7: attention: k and v come together"}},
        Refusal{"model x f32[batch, seq, 12]:\n  y = attention(x, heads, window=-1)\n",
                {"my.scheme:3:34: attention: 'window' must be a whole number", "-1"}},
        Refusal{"model x f32[batch, seq, 12]:\n  y = attention(x, heads, cap=-2)\n",
                {"my.scheme:3:7: attention: the cap must be 0 or more, found -2"}},
        Refusal{"model x f32[batch, seq, 12]:\n  y = attention(x, heads, scale=-2)\n",
                {"my.scheme:3:7: attention: the scale must be 0 or more, found -2"}},
        Refusal{"model x f32[batch, seq, 12]:\n  y = attention(x, heads, dropout=1)\n",
                {"my.scheme:3:7: attention: dropout must be in [0, 1), found 1"}},
        Refusal{"model x f32[batch, seq, 12], t f32[5, 9]:\n  y = attention(x, heads, bias=t)\n",
                {"my.scheme:3:7: attention: the bias must be f32[heads=4, n]", "5", "9"}},
        Refusal{"model x f32[batch, seq, 12], t f32[4, 9]:\n"
                "  y = attention(x, heads, causal=no, bias=t)\n",
                {"my.scheme:3:7: attention: a bias", "wants causal"}},
        Refusal{"model x f32[batch, seq, 12], t f32[3]:\n  y = attention(x, heads, sinks=t)\n",
                {"my.scheme:3:7: attention: the sinks must be f32[heads=4]", "3"}},
        Refusal{"model x f32[batch, seq, 12], t f32[batch, seq]:\n"
                "  y = attention(x, heads, segments=t)\n",
                {"my.scheme:3:7: attention: the segments must be i32[", "found f32["}},
        Refusal{"model x f32[batch, seq, hidden]:\n  y = rotary(x, heads)\n",
                {"my.scheme:3:7: rotary: ", "6", "4 heads"}},
        Refusal{"model x f32[batch, hidden], z f32[batch, vocab]:\n  y = x + z\n",
                {"my.scheme:3:7: add: axes do not fit", "hidden=6", "vocab=5"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x/0\n", {"my.scheme:3:7: /: "}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t) + 1\n",
                {"my.scheme:3:7: +: a loss is added to a loss", "found a loss + a number"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t) * x\n",
                {"my.scheme:3:7: *: ", "multiplied by a number", "found a loss * an object"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = relu(cross_entropy(x, t))\n",
                {"my.scheme:3:12: relu: 'x' must be an object, found a loss"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t, ignore=0.5)\n",
                {"my.scheme:3:7: cross_entropy: ignore must be a whole number", "0.5"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t, smoothing=1)\n",
                {"my.scheme:3:7: cross_entropy: smoothing must be from 0 to less than 1, found 1"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t, z=-1/2)\n",
                {"my.scheme:3:7: cross_entropy: z must be from 0 to 1e6, found -0.5"}},
        Refusal{"model x f32[batch, hidden], t[batch]:\n  y = cross_entropy(x, t, cap=-30)\n",
                {"my.scheme:3:7: cross_entropy: cap must be 0, for none, or from ", "found -30"}},
        Refusal{"model t[batch, seq]:\n  x = embed(t, vocab) + embed(position, 4)\n",
                {"my.scheme:3:25: embed: 8 positions do not fit"}},
        Refusal{"model x f32[batch]:\n  y = embed(x, vocab)\n",
                {"my.scheme:3:7: embed: ids must be i32"}},
        Refusal{"model x f32:\n  y = linear(x, 3)\n",
                {"my.scheme:3:7: linear: x must have an axis"}},
        Refusal{"model x f32:\n  y = layer_norm(x)\n", {"my.scheme:3:7: layer_norm: x must have"}},
        Refusal{"model x f32:\n  y = rms_norm(x)\n", {"my.scheme:3:7: rms_norm: x must have"}},
        Refusal{"axes big=1024*1024*512\nmodel x f32[big, big]:\n  y = (x + 1)*2\n"
                "  z = split(y, 2)\n  s = softmax(x)\n",
                {"my.scheme:5:7: split: ", "more bytes than can be counted"}},
        Refusal{"axes big=1024*1024*1024\nmodel x f32[big, big, big]:\n  y = x\n",
                {"my.scheme:3:7: model: x ", "more bytes than can be counted"}},
        Refusal{"model x f32[one, one, one, one, one, one, one, one]:\n  y = split(x, one)\n",
                {"my.scheme:3:7: split: ", "more than 8 axes"}}));

// Results of a repeated box are operands of the next repetition by their place.
INSTANTIATE_TEST_SUITE_P(
    Scans, Refused,
    testing::Values(
        Refusal{
            "b h, e:\n  h = relu(h + e)\n  h, all = h, h\n"
            "model x f32[batch, hidden]:\n  h, all = b^3(x, x)\n",
            {"my.scheme:6:12: b: 'all' would be 'e' in the next repetition; call it 'e' if it is "
             "meant so, or give 'e' back before 'all', which is gathered in a list then"}},
        Refusal{"b h, e, f:\n  h, f, e = relu(h), e, f\n"
                "model x f32[batch, hidden]:\n  h, e, f = b^1(x, x, x)\n",
                {"my.scheme:5:13: b: 'f' would be 'e' in the next repetition"}}));

TEST(Scans, GiveBackByPlaceAndName) {
  const std::string text =
      "axes hidden=6 batch=2\n"
      "b h, e:\n  new = relu(h + e)\n  new, e, all = new, e, new\n"
      "model x f32[batch, hidden]:\n  h, e, all = b^3(x, x)\n  y = h + item(all, 0)\n";
  EXPECT_EQ(error_text([&] { elaborate_text(text); }), "");
}

INSTANTIATE_TEST_SUITE_P(
    Words, Refused,
    testing::Values(
        Refusal{"model x f32[batch, hidden]:\n  y = relu(x) when one == 1\n",
                {"my.scheme:3:7: ", "wanted 'else'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x when x > 1 else x\n",
                {"my.scheme:3:14: ", "wanted a number, found the object 'x'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x * l\n",
                {"my.scheme:3:11: ", "no object or number 'l'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x mod 2\n",
                {"my.scheme:3:7: mod: wants numbers, found an object"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x < 1 < 2\n",
                {"my.scheme:3:13: ", "the end of the line", "found '<'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = sum(x, hiden)\n",
                {"my.scheme:3:14: sum: wanted an axis of [batch=1, hidden=6]", "found hiden",
                 "did you mean 'hidden'?"}},
        Refusal{"model x f32[batch, hidden]:\n  y = sum(x, 2)\n",
                {"my.scheme:3:14: sum: ", "a number from -2 to 1, found 2"}},
        Refusal{"model x f32[hidden, hidden]:\n  y = sum(x, hidden)\n",
                {"my.scheme:3:14: sum: ", "has several axes 'hidden'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = concat(x, 3)\n",
                {"my.scheme:3:17: concat: 'xs' wants objects, found the number 3"}},
        Refusal{"model x f32[batch, hidden]:\n  y = where(x > 0, x)\n",
                {"my.scheme:3:7: where: 'no' is missing"}},
        Refusal{"model x f32[batch, hidden]:\n  y = maximum(1, 2)*x\n",
                {"my.scheme:3:7: maximum: ", "numbers alone"}},
        Refusal{"model x f32[batch, hidden]:\n  y = contract(x, x, \"bh,bh\")\n",
                {"my.scheme:3:7: contract: wants an index map", "bh,bh"}},
        Refusal{"model x f32[batch, hidden]:\n  y = contract(x, x, \"bi,ci->bd\")\n",
                {"my.scheme:3:7: contract: 'd' of the result is in no operand"}},
        Refusal{"model x f32[batch, seq, hidden]:\n  y = shift(x, 0.5)\n",
                {"my.scheme:3:7: shift: 'by' must be a whole number", "0.5"}},
        Refusal{"model x f32[batch, hidden]:\n  y = conv(x, 3)\n",
                {"my.scheme:3:7: conv: wants x[batch, seq, channels]"}},
        Refusal{"model x f32[batch, seq, hidden]:\n  y = rotary(x, one, dims=3)\n",
                {"my.scheme:3:7: rotary: dims must be an even number", "found 3"}},
        Refusal{"model x f32[batch, seq, hidden]:\n  y = rotary(x, one, scaling=magic)\n",
                {"my.scheme:3:7: rotary: scaling is none, linear, llama3 or yarn", "'magic'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x*param(hidden, init=three)\n",
                {"my.scheme:3:28: ", "wanted zeros, ones", "constant(...)", "found three"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x*param(hidden, int=ones)\n",
                {"my.scheme:3:9: param: there is no argument 'int'", "did you mean 'init'?"}},
        Refusal{"model x f32[batch, hidden]:\n  y = x*param(x)\n",
                {"my.scheme:3:15: ", "wanted a number, found the object 'x'"}},
        Refusal{"model x f32[batch, hidden]:\n  y = reverse(x)\n",
                {"my.scheme:3:15: reverse: wants a list", "found an object x"}},
        Refusal{"f x:\n  a, b = x, x\nmodel x f32[batch]:\n  y, s = f^2(x)\n  z = item(s, 2)\n",
                {"my.scheme:6:15: item: the list has items 0 to 1, found 2"}},
        Refusal{"f x:\n  a, b = x, x\ng x, y:\n  z = x\n"
                "model x f32[batch]:\n  y, s = f^2(x)\n  z = g^3(x, s)\n",
                {"my.scheme:8:7: g: is repeated 3 times, and the list for 'y' has 2 objects"}},
        Refusal{"f x:\n  a, b = x, x\nmodel x f32[batch]:\n  y, s = f^2(x)\n  z = f(s)\n",
                {"my.scheme:6:9: f: only a repeated box takes a list"}},
        Refusal{"f x:\n  a, b = x, x\nmodel x f32[batch]:\n  y, s = f^2(x)\n  z = s + y\n",
                {"my.scheme:6:7: +: wants objects or numbers, found a list"}},
        Refusal{"f x:\n  y = linear(x, hidden)\nmodel x f32[batch, hidden]:\n"
                "  y = f(x, weights=g)\n",
                {"my.scheme:5:20: f: there is no call 'g' above"}},
        Refusal{"f x:\n  y = linear(x, hidden)\nmodel x f32[batch, hidden], z f32[batch, vocab]:\n"
                "  y = f(x)\n  w = f(z, weights=f)\n",
                {"my.scheme:3:7: f#2.linear#1 wants a parameter [hidden=6, vocab=5]",
                 "f.linear#1.weight", "[hidden=6, hidden=6]"}},
        Refusal{"f x, t:\n  a = cross_entropy(x, t)\n  b = a when l == 0 else x\n  y, c = x, b\n"
                "model x f32[batch, hidden], t[batch]:\n  y, c = f^2(x, t)\n",
                {"my.scheme:7:10: f: repetition 1 gives 0 losses, those before it 1"}},
        Refusal{"g x:\n  a, b = x, x\nf x:\n  y = g(x) when l == 0 else x\n  z = y\n"
                "model x f32[batch]:\n  a, b = f^2(x)\n",
                {"my.scheme:8:10: f: repetition 1 gives 1 object, those before it 2"}},
        Refusal{"model x f32[batch]:\n  y = x when 2 in 3 else x\n",
                {"my.scheme:3:19: in: wanted a list such as [0, 2], found 3"}},
        Refusal{"model x f32[batch]:\n  y = x in [0, 2]\n",
                {"my.scheme:3:7: in: wants a number and a list, found an object"}},
        Refusal{"model x f32[batch]:\n  y = x in x\n",
                {"my.scheme:3:7: in: wants a number and a list, found an object"}},
        Refusal{"use \"other.scheme\"\nmodel x:\n  y = x\n",
                {"my.scheme:2:1: ", "read from a file"}}));

TEST(Refused, SettingsThatAreNotThere) {
  const auto with = [](std::map<std::string, double> settings) {
    return error_text([&] { elaborate_preset("gpt2", settings); });
  };
  EXPECT_TRUE(has(with({{"layrs", 2}}), "models/gpt2.scheme: there is no axis or number 'layrs'"));
  EXPECT_TRUE(has(with({{"layrs", 2}}), "did you mean 'layers'?"));
  EXPECT_TRUE(
      has(with({{"layers", 2.5}}),
          "models/gpt2.scheme: axis 'layers' must be a whole number from 1 to 2^40, found 2.5"));
  EXPECT_TRUE(has(with({{"layers", 0}}), "axis 'layers'"));
  EXPECT_TRUE(has(with({{"batch", -1}}), "axis 'batch'"));
  EXPECT_TRUE(has(with({{"seq", 0.5}}), "axis 'seq'"));
  EXPECT_TRUE(has(with({{"eps", NAN}}), "'eps' must be a number"));
  EXPECT_TRUE(has(with({{"heads", 7}}), "attention: "));
  EXPECT_TRUE(has(with({{"heads", 7}}), "models/gpt2.scheme:17:7: "));
  EXPECT_TRUE(has(with({{"seq", 2000}}), "embed: 2000 positions do not fit"));
  EXPECT_TRUE(has(with({{"dropout", 1}}), "dropout: the rate must be"));
  EXPECT_TRUE(has(with({{"hidden", 0x1p38}, {"vocab", 0x1p38}}), "more bytes than can be counted"));
  // These bytes can be counted, and the operations on them cannot.
  EXPECT_TRUE(has(with({{"batch", 0x1p34}}), "linear: this call takes more operations than can"));
}

TEST(Refused, PresetsThatAreNotThere) {
  const Document document = parse_document("preset small:\nmodel x:\n  y = x\n", "my.scheme");
  const std::string text =
      error_text([&] { elaborate(document, "my.scheme", {.preset = "smal"}); });
  EXPECT_TRUE(has(text, "my.scheme: there is no preset 'smal'; it has small")) << text;
  EXPECT_TRUE(has(text, "did you mean 'small'?")) << text;
}

TEST(Refused, ASequenceWithoutLength) {
  const std::string text = error_text([] { elaborate_text("model x[batch, seq]:\n  y = x\n"); });
  EXPECT_TRUE(has(text, "my.scheme:1:16: 'seq' has no size")) << text;
  const std::string there = "axes hidden=2\nmodel x[batch]:\n  y = embed(position, 3)\n";
  EXPECT_TRUE(has(error_text([&] { elaborate_text(there); }), "my.scheme:3:13: 'seq' has no size"));
  EXPECT_EQ(elaborate_text(there, {.preset = "", .settings = {{"seq", 3}}}).outputs.size(), 1u);
}

TEST(Refused, ADefaultThatSpeaksOfAnAxisThatIsNotThere) {
  const std::string text =
      error_text([] { elaborate_text("model x[batch]:\n  y = embed(x, 3)\n"); });
  EXPECT_TRUE(has(text, "my.scheme:2:7: embed: 'width' is missing, for there is no axis 'hidden'"))
      << text;
}

TEST(Refused, BoxesThatGrowWithoutEnd) {
  std::string deep = "f0 x:\n  y = x\n", wide = deep;
  for (int i = 1; i < 100; ++i) {
    const std::string name = "f" + std::to_string(i), inner = "f" + std::to_string(i - 1);
    deep += name + " x:\n  y = " + inner + "(x)\n";
    wide += name + " x:\n  y = " + inner + "(" + inner + "(x))\n";
  }
  const auto said = [](const std::string& text, const char* last) {
    return error_text([&] { elaborate_text(text + "model x:\n  y = " + last + "(x)\n"); });
  };
  EXPECT_TRUE(has(said(deep, "f99"), "more than 64 boxes inside each other"));
  EXPECT_EQ(said(deep, "f40"), "");
  EXPECT_TRUE(has(said(wide, "f40"), "more than 262144 calls"));
}

// Random changes to the library's texts: each is a model or an Error, never a crash.
TEST(Refused, RandomChangesNeverCrash) {
  std::mt19937 random(20240607);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string letters = "()[]=,.:^*/+-#\"\n 0159aexyz_";
  int models = 0, errors = 0;
  for (int round = 0; round < 600; ++round) {
    const auto texts = library_texts();
    std::string text(texts[below(texts.size())].text);
    for (size_t change = 0, n = 1 + below(4); change < n; ++change) {
      const size_t at = below(text.size()), length = 1 + below(6);
      switch (below(4)) {
        case 0:
          text[at] = letters[below(letters.size())];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, 1, letters[below(letters.size())]);
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 2 * length));
      }
    }
    try {
      const Document document = parse_document(text, "my.scheme");
      EXPECT_EQ(parse_document(print(document), "my.scheme"), document) << text;
      const Scheme scheme =
          elaborate(document, "my.scheme", {.preset = "", .settings = {{"layers", 1}}});
      EXPECT_EQ(parse_scheme(print(scheme)), scheme) << text;
      ++models;
    } catch (const Error& error) {
      EXPECT_TRUE(has(error.what(), "my.scheme:")) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(models, 25);
  EXPECT_GT(errors, 50);
}

}  // namespace
}  // namespace adjoint
