// The flat notation: whatever a Scheme holds is printed and read back; what is malformed is
// refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error_text.h"
#include "scheme/scheme.h"

namespace adjoint {
namespace {

// A scheme with every field away from its default somewhere.
Scheme everything() {
  Scheme s;
  s.name = "gpt2-tiny.v1";
  const Type wide{Dtype::kBF16, {{"batch", 2}, {"3*hidden + 1", 5, 128}, {"f(a b)/2.0-1", 1}}};
  const Value x = s.add_input({.type = wide, .source = {"tokens"}, .role = Role::kInput});
  const Value w = s.add_input({.type = {Dtype::kF32, {{"vocab", 65, 128}}},
                               .source = {"block[3].linear#2.weight"},
                               .role = Role::kParameter,
                               .frozen = true,
                               .init = Init{Init::Kind::kNormal, 0.02 / std::sqrt(24.0)}});
  s[w].attributes = {
      .precision = "nf4/64",
      .residence = Residence::kRecomputed,
      .tier = Tier::kHost,
      .placement = {{"data", Spread::kSharded, 1, 65},
                    {"model", Spread::kSharded, 0},
                    {"tensor", Spread::kPartial},
                    {"expert", Spread::kReplicated}},
      .stage = 3,
      .parts = true,
      .training = {.rate = 1.0 / 3, .decay = 0.0, .optimizer = "sgd", .clipped_as = "tables"}};
  const Value m = s.add_input({.type = s[w].type,
                               .source = {"block[3].linear#2.weight", "adamw.m"},
                               .role = Role::kState,
                               .init = Init{}});
  const Value u = s.add_input({.type = {Dtype::kI64, {}},
                               .source = {"random"},
                               .role = Role::kControl,
                               .init = Init{Init::Kind::kUniform, 1e-300}});
  const Value o =
      s.add_input({.type = {Dtype::kF64, {}}, .source = {"o"}, .init = Init{Init::Kind::kOnes}});
  const Value a = s.add({.type = wide, .source = {"a'"}});
  const Value g =
      s.add({.type = s[w].type, .source = {"w", "grad.part2"}, .role = Role::kGradient});
  const Value m2 = s.add({.type = s[m].type, .source = s[m].source, .role = Role::kState});
  const Value loss = s.add({.type = {}, .source = {"loss"}, .role = Role::kMetric});
  s.morphisms = {
      {.op = "map",
       .inputs = {x, x, o},
       .outputs = {a},
       .attrs = {{"body",
                  std::string("t0 = mul(x0, x1); random0'block[0].dropout#1' # no comment")},
                 {"empty", std::string()},
                 {"int", int64_t{-7}},
                 {"large", INT64_MIN},
                 {"list", std::vector<int64_t>{1, -2, 3}},
                 {"none", std::vector<int64_t>{}},
                 {"real", 1.0},
                 {"small", -1e-300},
                 {"third", 1.0 / 3},
                 {"unbound", -INFINITY},
                 {"zero", -0.0}},
       .source = {"block[0].map#1"}},
      {.op = "grad.of",
       .inputs = {},
       .outputs = {g, loss},
       .source = {"w", "grad"},
       .phase = Phase::kBackward,
       .epoch = 2},
      {.op = "adamw",
       .inputs = {u, g, m},
       .outputs = {m2},
       .source = {"w"},
       .phase = Phase::kUpdate,
       .after = {a, loss}},
  };
  s.outputs = {loss, a};
  s.carries = {{m, m2}};
  s.mesh = {{"data", 2}, {"tensor", 3}};
  return s;
}

TEST(FlatNotation, KeepsEverything) {
  const Scheme scheme = everything();
  verify_structure(scheme);
  const std::string text = print(scheme);
  EXPECT_EQ(parse_scheme(text), scheme) << text;
  EXPECT_EQ(print(parse_scheme(text)), text);
}

TEST(FlatNotation, KindsOfNumbersStayApart) {
  Scheme scheme = everything();
  const Attrs& attrs = scheme.morphisms[0].attrs;
  const Attrs read = parse_scheme(print(scheme)).morphisms[0].attrs;
  for (const auto& [key, attr] : attrs) EXPECT_EQ(read.at(key).index(), attr.index()) << key;
  EXPECT_TRUE(std::signbit(std::get<double>(read.at("zero"))));
}

TEST(FlatNotation, ReadsAsItIsDocumented) {
  const Scheme scheme = parse_scheme(
      "scheme small:  # a comment\n"
      "  parameter %1 wte.weight: f32[vocab=65~128, hidden=128] init=normal(0.02) frozen\n"
      "\n"
      "  input %0 x: f32[batch=4, hidden=128]\n"
      "  %2 y:grad: bf16[batch=4, vocab=65] gradient place=data/sharded/1 = linear(%0, %1) {k=1, "
      "e=1.5} @y:grad backward epoch=3\n"
      "  carry %1 -> %1\n"
      "  return %2, %0\n");
  EXPECT_EQ(scheme.name, "small");
  EXPECT_EQ(scheme.inputs, (std::vector<Value>{1, 0}));
  EXPECT_EQ(scheme.outputs, (std::vector<Value>{2, 0}));
  EXPECT_EQ(scheme.carries, (std::vector<Carry>{{1, 1}}));
  const Object& weight = scheme[1];
  EXPECT_EQ(weight.type, (Type{Dtype::kF32, {{"vocab", 65, 128}, {"hidden", 128}}}));
  EXPECT_EQ(weight.type.num_elements(), 65 * 128);
  EXPECT_EQ(weight.type.num_physical(), 128 * 128);
  EXPECT_EQ(weight.role, Role::kParameter);
  EXPECT_TRUE(weight.frozen);
  EXPECT_EQ(weight.init, (Init{Init::Kind::kNormal, 0.02}));
  const Object& y = scheme[2];
  EXPECT_EQ(y.source, (Source{"y", "grad"}));
  EXPECT_EQ(y.role, Role::kGradient);
  EXPECT_EQ(y.attributes.placement, (std::vector<Placement>{{"data", Spread::kSharded, 1}}));
  ASSERT_EQ(scheme.morphisms.size(), 1u);
  const Morphism& m = scheme.morphisms[0];
  EXPECT_EQ(m.op, "linear");
  EXPECT_EQ(m.inputs, (std::vector<Value>{0, 1}));
  EXPECT_EQ(m.attrs, (Attrs{{"k", int64_t{1}}, {"e", 1.5}}));
  EXPECT_EQ(m.phase, Phase::kBackward);
  EXPECT_EQ(m.epoch, 3);
}

TEST(FlatNotation, AnEmptyScheme) {
  EXPECT_EQ(parse_scheme("scheme:"), Scheme{});
  EXPECT_EQ(parse_scheme(print(Scheme{})), Scheme{});
}

TEST(FlatNotation, Refusals) {
  const std::string head = "scheme:\n  input %0 x: f32[a=2]\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "s:1:1: wanted 'scheme' to begin a scheme, found the end of the text"},
      {"schemes:", "s:1:1: wanted 'scheme' to begin a scheme, found 'schemes'"},
      {"scheme a b:", "s:1:10: wanted ':' after the name of the scheme, found 'b'"},
      {"scheme a: x", "s:1:11: wanted the end of the line, found 'x'"},
      {"scheme:\n  inputs %0 x: f32[]",
       "s:2:3: wanted a role, '%', 'carry' or 'return', found 'inputs'"},
      {"scheme:\n  =", "s:2:3: wanted a role, '%', 'carry' or 'return', found '='"},
      {"scheme:\n  input 0 x: f32[]",
       "s:2:9: wanted '%' before the number of an object, found '0'"},
      {"scheme:\n  input %x: f32[]", "s:2:10: wanted the number of an object, found 'x'"},
      {"scheme:\n  input %-1 x: f32[]", "s:2:10: nothing defines %-1"},
      {"scheme:\n  input %1 x: f32[]", "s:2:20: nothing defines %0"},
      {"scheme:\n  input %99999999 x: f32[]", "s:2:10: nothing defines %99999999"},
      {"scheme:\n  input %99999999999999999999 x: f32[]", "s:2:10: wanted the number of an object"},
      {"scheme:\n  input %0: f32[]", "s:2:11: wanted a source path, found ':'"},
      {"scheme:\n  input %0 x f32[]",
       "s:2:14: wanted ':' after the source of an object, found 'f32'"},
      {"scheme:\n  input %0 x: f31[]", "s:2:15: wanted a dtype, found 'f31'"},
      {"scheme:\n  input %0 x: f32", "s:2:18: wanted '[' after a dtype, found the end of the text"},
      {"scheme:\n  input %0 x: f32[=2]", "s:2:19: wanted the name of an axis, found '='"},
      {"scheme:\n  input %0 x: f32[a]", "s:2:20: wanted '=' after the name of an axis, found ']'"},
      {"scheme:\n  input %0 x: f32[a=]", "s:2:21: wanted the size of an axis, found ']'"},
      {"scheme:\n  input %0 x: f32[a=0]", "s:2:21: wanted a size of at least 1"},
      {"scheme:\n  input %0 x: f32[a=-3]", "s:2:21: wanted a size of at least 1"},
      {"scheme:\n  input %0 x: f32[a=5~4]", "s:2:21: wanted a size of at least 1, and padding"},
      {"scheme:\n  input %0 x: f32[a=2 b=3]", "s:2:23: wanted ']' after the axes, found 'b'"},
      {"scheme:\n  input %0 x: f32[a=4294967296, b=4294967296]",
       "s:2:15: f32[a=4294967296, b=4294967296] has more bytes than can be counted"},
      {head + "  input %0 y: f32[]", "s:3:9: %0 is made twice"},
      {head + "  input %1 y: f32[] cold", "s:3:21: wanted a role or an attribute, found 'cold'"},
      {head + "  state %1 y: f32[] init=twos",
       "s:3:26: wanted zeros, ones, normal(...), uniform(...) or constant(...), found 'twos'"},
      {head + "  state %1 y: f32[] init=normal", "s:3:32: wanted '(' after the kind"},
      {head + "  state %1 y: f32[] init=normal(x)", "s:3:33: wanted a number, found 'x'"},
      {head + "  state %1 y: f32[] stage=-1", "s:3:27: wanted a stage, found -1"},
      {head + "  state %1 y: f32[] stage=4294967296", "s:3:27: wanted a stage, found 4294967296"},
      {head + "  state %1 y: f32[] precision=bf16",
       "s:3:31: wanted '\"' to begin a text, found 'bf16'"},
      {head + "  state %1 y: f32[] place=data", "s:3:31: wanted '/' after the mesh axis"},
      {head + "  state %1 y: f32[] place=data/split",
       "s:3:32: wanted replicated, sharded or partial, found 'split'"},
      {head + "  state %1 y: f32[] place=data/sharded", "s:3:39: wanted '/' after 'sharded'"},
      {head + "  state %1 y: f32[] place=data/sharded/0/x",
       "s:3:42: wanted the size of the whole axis or 'home', found 'x'"},
      {"scheme m mesh data:", "s:1:19: wanted '=' after an axis of the mesh, found ':'"},
      {"scheme m mesh data=1:", "s:1:15: wanted an axis of the mesh with at least 2 ranks"},
      {head + "  %1 y: f32[]", "s:3:14: wanted '=' after the objects that a morphism makes"},
      {head + "  %1 y: f32[] = (%0) @y", "s:3:17: wanted the name of an op, found '('"},
      {head + "  %1 y: f32[] = relu %0", "s:3:22: wanted '(' after the name of an op, found '%'"},
      {head + "  %1 y: f32[] = relu(%0", "s:3:24: wanted ')' after the operands"},
      {head + "  %1 y: f32[] = relu(%0)", "s:3:25: wanted '@' before the source of a morphism"},
      {head + "  %1 y: f32[] = relu(%2) @y", "s:3:22: %2 is read before anything makes it"},
      {head + "  %1 y: f32[] = relu(%0) {k} @y",
       "s:3:28: wanted '=' after the name of an attribute"},
      {head + "  %1 y: f32[] = relu(%0) {k=1 @y",
       "s:3:31: wanted '}' after the attributes, found '@'"},
      {head + "  %1 y: f32[] = relu(%0) {k=abc} @y",
       "s:3:29: wanted a number, a text or a list, found 'abc'"},
      {head + "  %1 y: f32[] = relu(%0) {k=1x} @y",
       "s:3:29: wanted a number, a text or a list, found '1x'"},
      {head + "  %1 y: f32[] = relu(%0) {k=99999999999999999999} @y",
       "s:3:29: wanted a number, a text or a list, found '99999999999999999999'"},
      {head + "  %1 y: f32[] = relu(%0) {k=[1, a]} @y", "s:3:33: wanted an integer, found 'a'"},
      {head + "  %1 y: f32[] = relu(%0) {k=\"a} @y", "s:3:35: wanted '\"' to end the text"},
      {head + "  %1 y: f32[] = relu(%0) @y epoch", "s:3:34: wanted '=' after 'epoch'"},
      {head + "  %1 y: f32[] = relu(%0) @y sideways",
       "s:3:29: wanted the end of the line, found 'sideways'"},
      {head + "  carry %0 %0", "s:3:12: wanted '->' between what is carried and where, found '%'"},
      {head + "  return %3", "s:3:10: %3 is read before anything makes it"},
  };
  for (const auto& [text, wanted] : cases) {
    const std::string found = error_text([&] { parse_scheme(text, "s"); });
    EXPECT_EQ(found.substr(0, std::string(wanted).size()), wanted) << text;
  }
}

TEST(Types, SizesAndStrides) {
  const Type type{Dtype::kBF16, {{"a", 2}, {"b", 5, 8}, {"c", 3}}};
  EXPECT_EQ(type.num_elements(), 30);
  EXPECT_EQ(type.num_physical(), 48);
  EXPECT_EQ(type.bytes(), Bytes{96});
  EXPECT_EQ(type.dim(1), 5);
  EXPECT_EQ(type.dim(-1), 3);
  EXPECT_EQ(dense_strides(type), (Strides{24, 3, 1}));
  EXPECT_EQ(to_string(type), "bf16[a=2, b=5~8, c=3]");
  EXPECT_EQ(to_string(Type{}), "f32[]");
  EXPECT_EQ(Type{}.num_elements(), 1);
  EXPECT_TRUE(same_shape(type, {Dtype::kF32, {{"x", 2}, {"y", 5}, {"z", 3}}}));
  EXPECT_FALSE(same_shape(type, {Dtype::kBF16, {{"a", 2}, {"b", 5}}}));
  EXPECT_EQ(with_dtype(type, Dtype::kF32).bytes(), Bytes{192});
  for (const char* dtype : {"f64", "f32", "bf16", "f16", "i64", "i32"}) {
    EXPECT_EQ(name(dtype_named(dtype).value()), dtype);
  }
  EXPECT_EQ(dtype_named("f8"), std::nullopt);
}

TEST(Types, Countable) {
  EXPECT_TRUE(is_countable({}));
  EXPECT_TRUE(is_countable({Dtype::kF32, {{"a", int64_t{1} << 59}}}));
  EXPECT_FALSE(is_countable({Dtype::kF32, {{"a", int64_t{1} << 60}}}));
  EXPECT_FALSE(is_countable({Dtype::kF32, {{"a", int64_t{1} << 40}, {"b", int64_t{1} << 40}}}));
  EXPECT_FALSE(is_countable({Dtype::kF32, {{"a", 1, int64_t{1} << 60}}}));
}

}  // namespace
}  // namespace adjoint
