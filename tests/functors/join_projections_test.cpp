// Which linear maps are joined and which are not, as text. The law is held on real models in
// tests/train/rewrite_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"
#include "functors/functor_text.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

TEST(JoinProjections, MapsOfOneObjectBecomeOne) {
  const std::string returned = R"(scheme:
  input %0 x: f32[b=2, s=3, h=4]
  parameter %1 q.weight: f32[o=6, h=4]
  parameter %2 q.bias: f32[o=6]
  parameter %3 k.weight: f32[p=2, h=4]
  parameter %4 k.bias: f32[p=2]
  %5 q: f32[b=2, s=3, o=6] = linear(%0, %1, %2) @q
  %6 e: f32[b=2, s=3, o=6] = exp(%5) @e
  %7 k: f32[b=2, s=3, p=2] = linear(%0, %3, %4) @k
  return %6, %7
)";
  // k is returned, so it stays as it was, and one alone is nothing to join.
  EXPECT_EQ(applied("join_projections", returned), returned);
  const std::string read = replaced(returned, "  return %6, %7",
                                    "  %8 f: f32[b=2, s=3, p=2] = exp(%7) @f\n  return %6, %8");
  expect_becomes(
      "join_projections", read,
      {"q.weight.joined = concat(q.weight, k.weight)", "q.bias.joined = concat(q.bias, k.bias)",
       "q.joined = linear(x, q.weight.joined, q.bias.joined)", "q = slice(q.joined)",
       "k = slice(q.joined)", "e = exp(q)", "f = exp(k)"});
  // What was said of the maps is said of the joined one.
  const std::string narrow =
      replaced(replaced(read, "o=6] = linear", "o=6] precision=\"bf16\" = linear"), "p=2] = linear",
               "p=2] precision=\"bf16\" = linear");
  const Scheme joined = apply_functor("join_projections", parse_scheme(narrow));
  for (const char* path : {"q.joined", "q", "k"}) {
    EXPECT_EQ(object_at(joined, path).attributes.precision, "bf16") << path;
  }
}

// Two maps by `first` and `second` of one object, or of two.
std::string two_maps(const std::string& second_parameter, const std::string& second_map) {
  return R"(scheme:
  input %0 x: f32[s=3, h=4]
  input %1 y: f32[s=3, h=4]
  parameter %2 first: f32[o=4, h=4]
  parameter %3 second: f32[o=4, h=4])" +
         second_parameter + R"(
  parameter %4 bias: f32[o=4]
  %5 a: f32[s=3, o=4] = linear(%0, %2) @a
  %6 b: f32[s=3, o=4] = )" +
         second_map + R"( @b
  %7 c: f32[s=3, o=4] = add(%5, %6) @c
  return %7
)";
}

TEST(JoinProjections, LeavesAloneWhatMustStayApart) {
  const std::string joins = two_maps("", "linear(%0, %3)");
  EXPECT_NE(applied("join_projections", joins), joins);
  for (const std::string& text : {
           two_maps("", "linear(%1, %3)"),         // of another object
           two_maps(" frozen", "linear(%0, %3)"),  // one learns, one does not
           two_maps(" precision=\"bf16\"", "linear(%0, %3)"),
           two_maps("", "linear(%0, %3, %4)"),  // one has a bias
           two_maps("", "linear(%0, %2)"),      // one weight for both
       }) {
    EXPECT_EQ(applied("join_projections", text), text);
  }
  // The readout's logits are whole rows of a loss, and its weight is a table elsewhere.
  const char* readout = R"(scheme:
  input %0 x: f32[s=3, h=4]
  input %1 t: i32[s=3]
  parameter %2 w: f32[v=5, h=4]
  parameter %3 gate: f32[v=5, h=4]
  %4 y: f32[s=3, v=5] = linear(%0, %2) @y
  %5 g: f32[s=3, v=5] = linear(%0, %3) @g
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[s=3] = cross_entropy(%4, %1) {ignore=-1} @loss
  %9 e: f32[s=3, v=5] = exp(%5) @e
  return %6, %7, %9
)";
  EXPECT_EQ(applied("join_projections", readout), readout);
  const char* tied = R"(scheme:
  input %0 x: f32[s=3, h=4]
  input %1 ids: i32[s=3]
  parameter %2 table: f32[o=4, h=4]
  parameter %3 w: f32[o=4, h=4]
  %4 a: f32[s=3, o=4] = linear(%0, %2) @a
  %5 b: f32[s=3, o=4] = linear(%0, %3) @b
  %6 rows: f32[s=3, h=4] = embed(%1, %2) @rows
  %7 c: f32[s=3, o=4] = add(%4, %5) @c
  return %6, %7
)";
  EXPECT_EQ(applied("join_projections", tied), tied);
}

// Attention and feed-forward side by side on one norm: a rule about attention must not reach the
// feed-forward because both have become one map.
constexpr std::string_view kParallel = R"(axes hidden=8 heads=2 ffn=12 context=4 vocab=11 layers=2
block x[batch, seq, hidden]:
  n = rms_norm(x)
  q = linear(n, hidden, bias=no, name=q)
  k = linear(n, hidden, bias=no, name=k)
  v = linear(n, hidden, bias=no, name=v)
  a = linear(attention(q, heads, causal, k=k, v=v, kv_heads=heads), hidden, bias=no, name=out)
  h = silu(linear(n, ffn, bias=no, name=gate)) * linear(n, ffn, bias=no, name=up)
  x = x + a + linear(h, hidden, bias=no, name=down)
model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=table))
  loss = cross_entropy(linear(rms_norm(x), vocab, name=readout), targets)
)";

TEST(JoinProjections, JoinsOnlyUsesOfOneRole) {
  const Scheme forward = elaborate_text(kParallel, {.settings = {{"batch", 2}}});
  const Scheme joined = apply_functor("join_projections", forward);
  for (const std::string block : {"block[0].", "block[1]."}) {
    ASSERT_TRUE(joined.find({block + "gate.joined"})) << print(joined);
    EXPECT_EQ(object_at(joined, block + "q.joined").type.dim(-1), 3 * 8);
    EXPECT_EQ(object_at(joined, block + "gate.joined").type.dim(-1), 2 * 12);
  }
  const Functor narrow = parse_functor(
      "functor narrow:\n  law approximating\n"
      "  object activation of attention -> bf16\n",
      "narrow.functor");
  const Arguments args(narrow.name, narrow.params, parse_term("narrow()", "stack"));
  const StepOptions options;
  Application::Said said;
  Application application{.functor = "narrow", .args = args, .options = options, .said = &said};
  const Scheme told = narrow.rules[0].apply(joined, application);
  EXPECT_EQ(object_at(told, "block[0].q.joined").attributes.precision, "bf16");
  for (const std::string path : {"gate.joined", "gate", "up"}) {
    EXPECT_EQ(object_at(told, "block[1]." + path).attributes.precision, "") << path;
  }
}

// The gradient of the slices is one concat and no padded sum; each weight's is a slice with its own
// name.
TEST(JoinProjections, ItsGradientIsJoinedToo) {
  const Scheme joined = apply_functor("join_projections", parse_scheme(R"(scheme:
  input %0 tokens: i32[s=3]
  input %1 t: i32[s=3]
  parameter %2 table: f32[v=5, h=4]
  parameter %3 gate: f32[o=6, h=4]
  parameter %4 up: f32[o=6, h=4]
  parameter %5 down: f32[v=5, o=6]
  %6 x: f32[s=3, h=4] = embed(%0, %2) @x
  %7 g: f32[s=3, o=6] = linear(%6, %3) @g
  %8 u: f32[s=3, o=6] = linear(%6, %4) @u
  %9 m: f32[s=3, o=6] = mul(%7, %8) @m
  %10 y: f32[s=3, v=5] = linear(%9, %5) @y
  %11 loss: f32[] metric, %12 loss.count: f32[] metric, %13 loss.lse: f32[s=3] = cross_entropy(%10, %1) {ignore=-1} @loss
  return %11, %12
)"));
  const Scheme step = apply_adjoint(joined);
  verify(step);
  int concats = 0, products = 0;
  for (const Morphism& m : step.morphisms) {
    EXPECT_NE(m.op, "pad");
    EXPECT_NE(m.op, "add");
    if (m.phase != Phase::kBackward) continue;
    concats += m.op == "concat";
    products += m.op == "contract";
  }
  EXPECT_EQ(concats, 1);
  EXPECT_EQ(products, 4);  // two for the joined map, two for the readout
  for (const char* path : {"gate", "up"}) {
    const auto gradient = step.find({path, "grad"});
    ASSERT_TRUE(gradient) << path;
    EXPECT_EQ(step.morphisms[producers(step)[*gradient]].op, "slice");
  }
}

}  // namespace
}  // namespace adjoint
