// Text and settings -> scheme, on models that no library has.
#include "models/elaborate.h"

#include <cmath>

#include "base/error_text.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

using Strings = std::vector<std::string>;

constexpr std::string_view kAxes = "axes hidden=8 heads=2 context=4 vocab=5\n";
std::string with_axes(std::string_view rest) { return std::string(kAxes) + std::string(rest); }

TEST(Settings, ValuesMayReferToEachOtherInAnyOrder) {
  const Document document = parse_document(
      "axes dim=hidden/heads hidden=64 heads=4 ffn=ceil(8*hidden/3) least=min(heads, dim) "
      "most=max(heads, dim) context=16\n"
      "numbers rate=1/hidden root=sqrt(hidden) less=-rate below=floor(hidden/10) "
      "cube=pow(heads, 3) left=(hidden - 7) mod 5 around=-1 mod heads\n"
      "preset wide: hidden=2*heads*8\n"
      "model x[batch]:\n  y = x\n",
      "my.scheme");
  const std::map<std::string, double> plain = {
      {"batch", 1}, {"context", 16},    {"dim", 16},  {"ffn", 171},
      {"heads", 4}, {"hidden", 64},     {"least", 4}, {"most", 16},
      {"seq", 16},  {"rate", 1.0 / 64}, {"root", 8},  {"less", -1.0 / 64},
      {"below", 6}, {"cube", 64},       {"left", 2},  {"around", 3}};
  EXPECT_EQ(resolve_settings(document, "my.scheme", {}), plain);

  const auto changed = resolve_settings(
      document, "my.scheme",
      {.preset = "wide", .settings = {{"heads", 8}, {"batch", 3}, {"seq", 5}, {"rate", 0.5}}});
  EXPECT_EQ(changed.at("hidden"), 128);
  EXPECT_EQ(changed.at("dim"), 16);
  EXPECT_EQ(changed.at("rate"), 0.5);
  EXPECT_EQ(changed.at("less"), -0.5);
  EXPECT_EQ(changed.at("batch"), 3);
  EXPECT_EQ(changed.at("seq"), 5);
}

TEST(Settings, TheUsersWordIsAboveThePresets) {
  const Document document =
      parse_document("axes n=1\npreset p: n=2\nmodel x[n]:\n  y = x\n", "my.scheme");
  const auto n = [&](const ModelConfig& config) {
    return resolve_settings(document, "my.scheme", config).at("n");
  };
  EXPECT_EQ(n({}), 1);
  EXPECT_EQ(n({.preset = "p"}), 2);
  EXPECT_EQ(n({.preset = "p", .settings = {{"n", 3}}}), 3);
}

TEST(Settings, ADocumentMaySetBatchAndSeq) {
  const Document document =
      parse_document("axes batch=6 seq=7 context=9\nmodel x[batch, seq]:\n  y = x\n", "my.scheme");
  const Scheme scheme = elaborate(document, "my.scheme", {});
  EXPECT_EQ(to_string(scheme[scheme.inputs[0]].type), "i32[batch=6, seq=7]");
}

TEST(Elaborate, TheSmallestModel) {
  const Scheme scheme = elaborate_text("model x f32[batch]:\n  y = x\n");
  EXPECT_EQ(scheme.inputs, scheme.outputs);
  EXPECT_TRUE(scheme.morphisms.empty());
  EXPECT_EQ(scheme.name, "model");
  EXPECT_EQ(num_parameters(scheme), 0);
}

TEST(Elaborate, AMultilayerPerceptron) {
  const Scheme scheme = elaborate_text(
      "axes pixels=6 classes=3\n"
      "model image f32[batch, pixels], class[batch]:\n"
      "  h = relu(linear(image, 2*pixels))\n"
      "  loss = cross_entropy(linear(h, classes, init=zeros), class, ignore=-100)\n",
      {.preset = "", .settings = {{"batch", 4}}});
  EXPECT_EQ(num_parameters(scheme), 6 * 12 + 12 + 12 * 3 + 3);
  EXPECT_EQ(to_string(object_at(scheme, "linear#1.weight").type), "f32[2*pixels=12, pixels=6]");
  EXPECT_EQ(to_string(object_at(scheme, "linear#2").type), "f32[batch=4, classes=3]");
  EXPECT_EQ(object_at(scheme, "linear#2.weight").init, Init{});
  EXPECT_EQ(object_at(scheme, "class").type.dtype, Dtype::kI32);
  EXPECT_EQ(object_at(scheme, "image").type.dtype, Dtype::kF32);
  EXPECT_EQ(call_at(scheme, "cross_entropy#1").attrs.at("ignore"), Attr{int64_t{-100}});
  EXPECT_EQ(parse_scheme(print(scheme)), scheme);
}

TEST(Elaborate, ARepeatedBoxFeedsAllItsOutputsBack) {
  const Scheme scheme =
      elaborate_text(with_axes("pair x[batch, seq, hidden], y[batch, seq, hidden]:\n"
                               "  x, y = linear(y, hidden), x\n"
                               "model tokens[batch, seq]:\n"
                               "  e = embed(tokens, vocab)\n"
                               "  a, b = pair^3(e, e)\n"
                               "  out = a - b\n"));
  EXPECT_EQ(num_parameters(scheme), 5 * 8 + 3 * (8 * 8 + 8));
  const Value e = call_at(scheme, "embed#1").outputs[0];
  const Morphism first = call_at(scheme, "pair[0].linear#1"),
                 second = call_at(scheme, "pair[1].linear#1"),
                 third = call_at(scheme, "pair[2].linear#1");
  EXPECT_EQ(first.inputs[0], e);
  EXPECT_EQ(second.inputs[0], e);  // y is what x was
  EXPECT_EQ(third.inputs[0], first.outputs[0]);
  EXPECT_EQ(call_at(scheme, "sub#1").inputs,
            (std::vector<Value>{third.outputs[0], second.outputs[0]}));
}

TEST(Elaborate, ProductsComposeWithoutNames) {
  const Scheme scheme = elaborate_text(
      "swap x f32, y f32:\n  a, b = y, x\n"
      "model x f32[batch], y f32[batch]:\n"
      "  both = swap(swap(swap(x, y)))\n"
      "  p, q = swap(both)\n"
      "  r, s, t = swap(x, y), x\n"
      "  u, v, w, z = p, q, r, t\n",
      {.preset = "", .settings = {}});
  const Value x = scheme.inputs[0], y = scheme.inputs[1];
  EXPECT_EQ(scheme.outputs, (std::vector<Value>{x, y, y, x}));
}

TEST(Elaborate, PowersOneAndZero) {
  const std::string text = with_axes(
      "numbers n=1\n"
      "step x:\n  x = linear(x, hidden)\n"
      "model x f32[batch, hidden]:\n  y = step^n(x)\n  z = step^(n - 1)(y)\n");
  const Scheme scheme = elaborate_text(text);
  EXPECT_EQ(paths_of(scheme, Role::kParameter),
            (Strings{"step[0].linear#1.weight", "step[0].linear#1.bias"}));
  EXPECT_EQ(scheme.outputs, call_at(scheme, "step[0].linear#1").outputs);
  const Scheme twice = elaborate_text(text, {.preset = "", .settings = {{"n", 2}}});
  EXPECT_EQ(
      paths_of(twice, Role::kParameter),
      (Strings{"step[0].linear#1.weight", "step[0].linear#1.bias", "step[1].linear#1.weight",
               "step[1].linear#1.bias", "step#2[0].linear#1.weight", "step#2[0].linear#1.bias"}));
}

TEST(Elaborate, BoxesInsideBoxesAndTheirPaths) {
  const Scheme scheme =
      elaborate_text(with_axes("norm x:\n  y = rms_norm(x)\n"
                               "half x[batch, seq, hidden]:\n"
                               "  x = x + linear(norm(x), hidden, bias=no)\n"
                               "block x[batch, seq, hidden]:\n"
                               "  x = half(half(x), name=second)\n"
                               "  x = half(x)\n"
                               "model tokens[batch, seq]:\n"
                               "  x = block^2(embed(tokens, vocab, name=table))\n"
                               "  x = block(x, name=last)\n"));
  Strings wanted = {"table.weight"};
  for (const std::string block : {"block[0]", "block[1]", "last"}) {
    for (const std::string half : {"half", "second", "half#3"}) {
      wanted.push_back(block + "." + half + ".norm.rms_norm#1.weight");
      wanted.push_back(block + "." + half + ".linear#1.weight");
    }
  }
  EXPECT_EQ(paths_of(scheme, Role::kParameter), wanted);
  EXPECT_EQ(parse_scheme(print(scheme)), scheme);
}

TEST(Elaborate, NamesDoNotRenumberOtherCalls) {
  const auto text = [](const char* name) {
    return with_axes(std::string("model x f32[batch, hidden]:\n  x = linear(x, hidden") + name +
                     ")\n  x = linear(x, hidden)\n");
  };
  EXPECT_EQ(paths_of(elaborate_text(text("")), Role::kParameter)[2], "linear#2.weight");
  EXPECT_EQ(paths_of(elaborate_text(text(", name=first")), Role::kParameter)[2], "linear#2.weight");
}

// A call that says its number does not count, and no other has it, wherever it stands.
TEST(Elaborate, ACallMaySayItsNumber) {
  const auto paths = [](const std::string& first, const std::string& second,
                        const std::string& third) {
    return paths_of(elaborate_text(with_axes("model x f32[batch, hidden]:\n"
                                             "  x = rms_norm(x" +
                                             first +
                                             ")\n"
                                             "  x = rms_norm(x" +
                                             second +
                                             ")\n"
                                             "  x = rms_norm(x" +
                                             third + ")\n")),
                    Role::kParameter);
  };
  const auto norms = [](int a, int b, int c) {
    Strings all;
    for (const int n : {a, b, c}) all.push_back("rms_norm#" + std::to_string(n) + ".weight");
    return all;
  };
  EXPECT_EQ(paths("", "", ""), norms(1, 2, 3));
  EXPECT_EQ(paths(", name=\"rms_norm#3\"", "", ""), norms(3, 1, 2));
  EXPECT_EQ(paths("", ", name=\"rms_norm#7\"", ""), norms(1, 7, 2));
  EXPECT_EQ(paths("", "", ", name=\"rms_norm#2\""), norms(1, 3, 2));
}

TEST(Elaborate, InnerCallsComeFirst) {
  const Scheme scheme = elaborate_text(
      with_axes("model x f32[batch, hidden]:\n"
                "  y = linear(linear(x, 3, bias=no) * linear(x, 3, bias=no), 7, bias=no)\n"));
  EXPECT_EQ(object_at(scheme, "linear#1.weight").type.dim(1), 8);
  EXPECT_EQ(object_at(scheme, "linear#2.weight").type.dim(1), 8);
  EXPECT_EQ(object_at(scheme, "linear#3.weight").type.dim(0), 7);
  // A bare number labels nothing, so the op's own word does.
  EXPECT_EQ(to_string(object_at(scheme, "linear#3.weight").type), "f32[out=7, out=3]");
}

TEST(Elaborate, TiedWeightsAreFoundFromInsideOut) {
  const Scheme scheme = elaborate_text(
      with_axes("inner x:\n  y = linear(x, hidden, bias=no, weight=w)\n"
                "outer x:\n  z = linear(x, hidden, bias=no, name=w)\n  y = inner(z)\n"
                "model x f32[batch, hidden]:\n"
                "  x = linear(x, hidden, bias=no, name=w)\n"
                "  x = inner(x)\n"
                "  x = outer(x)\n"));
  EXPECT_EQ(call_at(scheme, "inner.linear#1").inputs[1], *scheme.find({"w.weight"}));
  EXPECT_EQ(call_at(scheme, "outer.inner.linear#1").inputs[1], *scheme.find({"outer.w.weight"}));
  EXPECT_EQ(num_parameters(scheme), 2 * 64);
}

TEST(Elaborate, AnObjectMayBeAWeight) {
  const Scheme scheme = elaborate_text(
      "axes n=3\nmodel x f32[batch, n], w f32[n, n]:\n  y = linear(x, n, bias=no, weight=w)\n");
  EXPECT_EQ(call_at(scheme, "linear#1").inputs, scheme.inputs);
}

TEST(Elaborate, WhenAnArgumentIsNotGivenItsDefaultHolds) {
  const std::string text = with_axes(
      "numbers biased=0 tied=0\n"
      "model x f32[batch, hidden]:\n"
      "  x = linear(x, hidden, bias=no, name=a)\n"
      "  x = linear(x, hidden, bias=biased, weight=a when tied, init=zeros when yes, name=b)\n");
  EXPECT_EQ(paths_of(elaborate_text(text), Role::kParameter), (Strings{"a.weight", "b.weight"}));
  EXPECT_EQ(object_at(elaborate_text(text), "b.weight").init, Init{});
  EXPECT_EQ(
      paths_of(elaborate_text(text, {.preset = "", .settings = {{"tied", 1}}}), Role::kParameter),
      Strings{"a.weight"});
  EXPECT_EQ(
      paths_of(elaborate_text(text, {.preset = "", .settings = {{"biased", 1}}}), Role::kParameter),
      (Strings{"a.weight", "b.weight", "b.bias"}));
}

TEST(Elaborate, ArithmeticOfNumbersAndObjects) {
  const Scheme scheme = elaborate_text(
      "numbers n=4\n"
      "model x f32[batch], y f32[batch]:\n"
      "  two = n/2\n"
      "  a = (x + y) - (x * y) / y\n"
      "  b = n*x\n"
      "  c = x/two\n"
      "  d = x + two\n"
      "  e = x - 3\n"
      "  f = 3 - x\n"
      "  g = -x\n"
      "  h = a + b + c + d + e + f + g\n");
  const auto is_scale = [&](const char* path, double by, double plus) {
    const Morphism m = call_at(scheme, path);
    EXPECT_EQ(m.op, "scale");
    EXPECT_EQ(m.attrs, (Attrs{{"by", by}, {"plus", plus}})) << path;
    EXPECT_EQ(m.inputs, std::vector<Value>{scheme.inputs[0]}) << path;
  };
  is_scale("scale#1", 4, 0);
  is_scale("scale#2", 0.5, 0);
  is_scale("scale#3", 1, 2);
  is_scale("scale#4", 1, -3);
  is_scale("scale#5", -1, 3);
  is_scale("scale#6", -1, 0);
  const std::vector<Value> x_and_y = scheme.inputs;
  EXPECT_EQ(call_at(scheme, "add#1").inputs, x_and_y);
  EXPECT_EQ(call_at(scheme, "mul#1").inputs, x_and_y);
  EXPECT_EQ(call_at(scheme, "div#1").inputs,
            (std::vector<Value>{call_at(scheme, "mul#1").outputs[0], x_and_y[1]}));
  EXPECT_EQ(call_at(scheme, "sub#1").inputs,
            (std::vector<Value>{call_at(scheme, "add#1").outputs[0],
                                call_at(scheme, "div#1").outputs[0]}));
}

TEST(Elaborate, FlagsWordsAndSizes) {
  const Scheme scheme = elaborate_text(
      with_axes("model x f32[batch, seq, hidden]:\n"
                "  d = hidden/heads\n"
                "  a = softmax(x, causal)\n"
                "  b = softmax(a)\n"
                "  c = gelu(b, approximate=none)\n"
                "  e = slice(c, 0, d)\n"
                "  f = split(x, heads)\n"
                "  g = merge(f)\n"
                "  h = attention(linear(g, 3*max(hidden, d)), heads, causal=no, kv_heads=none)\n"));
  EXPECT_EQ(call_at(scheme, "softmax#1").attrs.at("causal"), Attr{int64_t{1}});
  EXPECT_EQ(call_at(scheme, "softmax#2").attrs.at("causal"), Attr{int64_t{0}});
  EXPECT_EQ(call_at(scheme, "gelu#1").attrs.at("approximate"), Attr{std::string("none")});
  EXPECT_EQ(call_at(scheme, "slice#1").attrs, (Attrs{{"start", int64_t{0}}, {"size", int64_t{4}}}));
  EXPECT_EQ(call_at(scheme, "split#1").attrs.at("parts"), Attr{int64_t{2}});
  EXPECT_EQ(call_at(scheme, "attention#1").attrs.at("causal"), Attr{int64_t{0}});
  EXPECT_EQ(call_at(scheme, "attention#1").attrs.at("kv_heads"), Attr{int64_t{2}});
  EXPECT_EQ(object_at(scheme, "linear#1.weight").type.axes[0].name, "3*max(hidden d)");
  EXPECT_EQ(parse_scheme(print(scheme)), scheme);
}

TEST(Elaborate, PositionIsMadeOnce) {
  const Scheme scheme =
      elaborate_text(with_axes("place x:\n  x = x + embed(position, context)\n"
                               "model tokens[batch, seq]:\n"
                               "  x = place^2(embed(tokens, vocab)) + embed(position, context)\n"));
  int made = 0;
  for (const Morphism& m : scheme.morphisms) made += m.op == "positions";
  EXPECT_EQ(made, 1);
  EXPECT_EQ(call_at(scheme, "position").attrs.at("shape"), Attr{std::vector<int64_t>{4}});
}

TEST(Elaborate, ABoxMayHaveTheNameOfAnOp) {
  const Scheme scheme =
      elaborate_text(with_axes("gelu x:\n  y = relu(x)\nmodel x f32[batch]:\n  y = gelu(x)\n"));
  EXPECT_EQ(call_at(scheme, "gelu.relu#1").op, "relu");
}

TEST(Elaborate, UnusedBoxesMayBeWrong) {
  EXPECT_EQ(elaborate_text("odd x:\n  y = no_such_op(x, z)\n"
                           "again x:\n  y = again(x)\n"
                           "model x[batch]:\n  y = x\n")
                .inputs.size(),
            1u);
}

TEST(Elaborate, FrozenParametersAreSaidInTheText) {
  const Scheme s = elaborate_text(
      "axes context=4 hidden=6\n"
      "numbers cold=1\n"
      "model tokens[batch, seq], targets[batch, seq]:\n"
      "  x = embed(tokens, 9, name=table, frozen=yes)\n"
      "  x = linear(x, 9, name=out, frozen=yes when cold)\n"
      "  loss = cross_entropy(x, targets)\n");
  EXPECT_TRUE(object_at(s, "table.weight").frozen);
  EXPECT_TRUE(object_at(s, "out.weight").frozen);
  EXPECT_TRUE(object_at(s, "out.bias").frozen);
  EXPECT_THROW(elaborate_text("axes context=4 hidden=6\nmodel tokens[batch, seq]:\n"
                              "  x = relu(embed(tokens, 9), frozen=yes)\n"),
               Error);
}

TEST(Elaborate, ARepetitionKnowsItsNumber) {
  const Scheme s = elaborate_text(
      with_axes("half x:\n  y = linear(x, hidden, init=normal(1/(l + 1)), name=w)\n"
                "step x:\n"
                "  y = half(x) when l mod 2 == 0 else gelu(x, approximate=none when l > 2)\n"
                "  width = 3 when l == 1 else 4\n"
                "  z = linear(y, width)\n"
                "  y = linear(z, hidden)\n"
                "model x f32[batch, hidden]:\n  y = step^4(x)\n"));
  EXPECT_EQ(object_at(s, "step[0].half.w.weight").init->scale, 1);
  EXPECT_DOUBLE_EQ(object_at(s, "step[2].half.w.weight").init->scale, 1.0 / 3);
  EXPECT_FALSE(s.find({"step[1].half.w.weight"}));
  EXPECT_EQ(call_at(s, "step[1].gelu#1").attrs.at("approximate"), Attr{std::string("tanh")});
  EXPECT_EQ(call_at(s, "step[3].gelu#1").attrs.at("approximate"), Attr{std::string("none")});
  EXPECT_EQ(object_at(s, "step[1].linear#1.weight").type.dim(0), 3);
  EXPECT_EQ(object_at(s, "step[2].linear#1.weight").type.dim(0), 4);
}

TEST(Elaborate, ANumberIsInAListOrNot) {
  const Scheme s =
      elaborate_text(with_axes("step x:\n  y = gelu(x) when (l when l < 9 else 0) in [0, 1 + 1] "
                               "and not l in [] else relu(x)\n"
                               "model x f32[batch, hidden]:\n  y = step^4(x)\n"));
  std::vector<std::string> ops;
  for (const Morphism& m : s.morphisms) ops.push_back(m.op);
  EXPECT_EQ(ops, (Strings{"gelu", "relu", "gelu", "relu"}));
}

TEST(Elaborate, AnArgumentMayChooseAmongSeveralWords) {
  const Scheme s = elaborate_text(
      with_axes("step x:\n"
                "  y = gelu(x, approximate=none when l == 0 else tanh when l == 1 else none when l "
                "== 2)\n"
                "model x f32[batch, hidden]:\n  y = step^4(x)\n"));
  for (int l = 0; l < 4; ++l) {
    const std::string path = "step[" + std::to_string(l) + "].gelu#1";
    EXPECT_EQ(call_at(s, path).attrs.at("approximate"),
              Attr{std::string(l % 2 ? "tanh" : "none")});  // without a last else: the default
  }
}

TEST(Elaborate, CallsMayShareTheirWeights) {
  const Scheme s = elaborate_text(
      with_axes("mix x:\n  y = linear(x, hidden, name=w) * param(hidden, init=ones, name=g)\n"
                "pair x:\n  x = mix(x, name=a)\n  x = mix(x, weights=a)\n"
                "model x f32[batch, hidden]:\n"
                "  x = mix^3(x, weights=one)\n"
                "  x = pair^2(x)\n"
                "  x = pair^2(x, weights=pair)\n"));
  EXPECT_EQ(paths_of(s, Role::kParameter),
            (Strings{"mix[0].w.weight", "mix[0].w.bias", "mix[0].g", "pair[0].a.w.weight",
                     "pair[0].a.w.bias", "pair[0].a.g", "pair[1].a.w.weight", "pair[1].a.w.bias",
                     "pair[1].a.g"}));
  const auto weight = [&](const char* call) { return call_at(s, call).inputs[1]; };
  EXPECT_EQ(weight("mix[2].w"), *s.find({"mix[0].w.weight"}));
  EXPECT_EQ(weight("pair[1].mix#2.w"), *s.find({"pair[1].a.w.weight"}));
  EXPECT_EQ(weight("pair#2[1].a.w"), *s.find({"pair[1].a.w.weight"}));
  EXPECT_EQ(weight("pair#2[1].mix#2.w"), *s.find({"pair[1].a.w.weight"}));
}

TEST(Elaborate, ARepeatedBoxGathersAndDealsOut) {
  const Scheme s =
      elaborate_text(with_axes("down x:\n  y = linear(x, hidden)\n  x, kept = y, relu(y)\n"
                               "up x, kept, first:\n  x = x + kept*first\n"
                               "model x f32[batch, hidden]:\n"
                               "  y, kept = down^3(x)\n"
                               "  y = up^3(y, reverse(kept), x)\n"
                               "  z = concat(kept, x, axis=-1)\n"
                               "  y, z, last = y, z, item(kept, 2)\n"));
  const auto kept = [&](int i) {
    return call_at(s, "down[" + std::to_string(i) + "].relu#1").outputs[0];
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call_at(s, "up[" + std::to_string(i) + "].mul#1").inputs,
              (std::vector<Value>{kept(2 - i), s.inputs[0]}));
  }
  EXPECT_EQ(call_at(s, "concat#1").inputs,
            (std::vector<Value>{kept(0), kept(1), kept(2), s.inputs[0]}));
  EXPECT_EQ(s.outputs.back(), kept(2));
  EXPECT_EQ(s.outputs.size(), 3u);
}

TEST(Elaborate, AFreeParameterIsCalledLikeItsStatement) {
  const Scheme s =
      elaborate_text(with_axes("step x:\n"
                               "  gain = param(hidden, init=ones)\n"
                               "  shared = param(2, heads, frozen=yes)\n"
                               "  x = x*gain + param(hidden, init=normal(0.5), name=shift)\n"
                               "model x f32[batch, hidden]:\n  y = step^2(x)\n"));
  EXPECT_EQ(to_string(object_at(s, "step[1].gain").type), "f32[hidden=8]");
  EXPECT_EQ(object_at(s, "step[1].gain").init->kind, Init::Kind::kOnes);
  EXPECT_EQ(to_string(object_at(s, "step[0].shared").type), "f32[n0=2, heads=2]");
  EXPECT_TRUE(object_at(s, "step[0].shared").frozen);
  EXPECT_FALSE(object_at(s, "step[0].shift").frozen);
  EXPECT_EQ(parse_scheme(print(s)), s);
}

// One count, and nothing beside the sum, where all terms count the same targets.
TEST(Elaborate, TermsOfALossThatCountAlike) {
  const std::string head =
      "axes vocab=5 context=4\nmodel x f32[batch, seq, vocab], t[batch, seq]:\n";
  const Scheme alike =
      elaborate_text(head + "  loss = 2*(cross_entropy(x, t) + 0.5*average(max(x), t))\n");
  ASSERT_EQ(alike.outputs.size(), 2u);
  EXPECT_EQ(alike.outputs[1], call_at(alike, "cross_entropy#1").outputs[1]);
  const Scheme apart =
      elaborate_text(head + "  loss = cross_entropy(x, t) + average(max(x), t, ignore=3)\n");
  int counts = 0;
  for (const Morphism& m : apart.morphisms) counts += m.op == "count_targets";
  EXPECT_EQ(counts, 2);
  const Scheme single = elaborate_text(head + "  loss = cross_entropy(x, t)\n");
  EXPECT_EQ(single.morphisms.size(), 1u);
}

// What is counted along an axis keeps its label, whatever it is joined to.
TEST(Elaborate, AnIndexIsLabelledLikeItsAxis) {
  const Scheme scheme =
      elaborate_text(with_axes("step x[batch, seq, hidden]:\n"
                               "  x = x + index(x, seq)/sum(index(x, seq), axis=seq, keep=yes)\n"
                               "model tokens[batch, seq]:\n"
                               "  y = step^2(embed(tokens, vocab))\n"));
  EXPECT_EQ(to_string(object_at(scheme, "step[0].index#1").type), "f32[seq=4, n1=1]");
  EXPECT_EQ(to_string(object_at(scheme, "step[1].add#1").type), "f32[batch=1, seq=4, hidden=8]");
}

// An op has the weights of an earlier call as a box has them.
TEST(Elaborate, OpsShareAllWeightsOfACall) {
  const Scheme scheme =
      elaborate_text(with_axes("inner x:\n  x = layer_norm(x, weights=final)\n"
                               "model tokens[batch, seq]:\n"
                               "  x = layer_norm(embed(tokens, vocab), name=final)\n"
                               "  x = inner(linear(x, hidden, name=a))\n"
                               "  y = linear(x, hidden, weights=a)\n"));
  EXPECT_EQ(paths_of(scheme, Role::kParameter),
            (Strings{"embed#1.weight", "final.weight", "final.bias", "a.weight", "a.bias"}));
  const auto weights = [&](const char* path) {
    const Morphism call = call_at(scheme, path);
    return std::vector<Value>(call.inputs.begin() + 1, call.inputs.end());
  };
  EXPECT_EQ(weights("inner.layer_norm#1"), weights("final"));
  EXPECT_EQ(weights("linear#2"), weights("a"));
}

TEST(Elaborate, ANumberToThePowerOfAnObject) {
  const Scheme scheme = elaborate_text(
      with_axes("model tokens[batch, seq]:\n  y = pow(0.5, embed(tokens, vocab))\n"));
  const Morphism exponent = call_at(scheme, "pow#1.log"), made = call_at(scheme, "pow#1");
  EXPECT_EQ(exponent.op, "scale");
  EXPECT_EQ(std::get<double>(exponent.attrs.at("by")), std::log(0.5));
  EXPECT_EQ(made.op, "exp");
  EXPECT_EQ(made.inputs, exponent.outputs);
}

}  // namespace
}  // namespace adjoint
