// A model whose attention has every option, from its text to a step: what the text says, what an
// evaluation leaves out, and that parts, recomputation and precision keep to the meaning.
#include <gtest/gtest.h>

#include "functors/evaluation.h"
#include "functors/one_step.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

// Keys of 8 numbers and values of 6, three heads of queries to two of keys.
constexpr const char* kText = R"(axes hidden=24 heads=6 kv_heads=2 context=16 vocab=37
numbers dropout=0 window=0 cap=0 scale=0

block x[batch, seq, hidden], ids:
  n = rms_norm(x, 1e-5)
  q = linear(n, heads*8, name=q)
  k = linear(n, kv_heads*8, name=k)
  v = linear(n, kv_heads*6, name=v)
  a = attention(q, heads, causal, k=k, v=v, kv_heads=kv_heads, window=window, scale=scale, cap=cap, alibi=yes, segments=ids, dropout=dropout)
  x = x + linear(a, hidden, name=o)

model tokens[batch, seq], targets[batch, seq]:
  x = block(embed(tokens, vocab, name=wte), tokens, name=lower)
  x = block(x, tokens, name=upper)
  loss = cross_entropy(linear(x, vocab, name=readout), targets)
)";

Scheme model(std::map<std::string, double> settings) {
  settings.emplace("batch", 6);
  return elaborate_text(kText, {.settings = settings});
}

// The same with a bias and sinks that are trained, which are objects of the scheme.
Scheme with_tables(Scheme s) {
  for (size_t i = 0; i < s.morphisms.size(); ++i) {
    if (s.morphisms[i].op != "attention") continue;
    const std::string path = s.morphisms[i].source.path;
    const auto parameter = [&](const char* name, std::vector<Axis> axes) {
      return s.add_input({.type = {Dtype::kF32, std::move(axes)},
                          .source = {path + "." + name},
                          .role = Role::kParameter,
                          .init = Init{.kind = Init::Kind::kNormal, .scale = 1}});
    };
    const Value bias = parameter("bias", {{"heads", 6}, {"n", 5}});
    const Value sinks = parameter("sinks", {{"heads", 6}});
    Morphism& m = s.morphisms[i];
    m.inputs.insert(m.inputs.begin() + 3, {bias, sinks});
    m.attrs["bias"] = m.attrs["sinks"] = int64_t{1};
  }
  verify(s);
  return s;
}

Scheme all_options() {
  return with_tables(model({{"dropout", 0.2}, {"window", 7}, {"cap", 3}, {"scale", 0.3}}));
}

std::map<std::string, Numbers> after_one_step(const char* stack, bool reference) {
  return after_one_step(all_options(), stack, reference);
}

TEST(AttentionOptions, AreWrittenOnlyWhereTheySaySomething) {
  const Morphism plain = call_at(model({}), "lower.attention#1");
  EXPECT_EQ(plain.attrs, (Attrs{{"heads", int64_t{6}},
                                {"kv_heads", int64_t{2}},
                                {"causal", int64_t{1}},
                                {"alibi", int64_t{1}},
                                {"segments", int64_t{1}}}));
  EXPECT_EQ(plain.inputs.size(), 4u);
  EXPECT_FALSE(call_at(model({{"window", 16}}), "lower.attention#1").attrs.count("window"))
      << "as long as the sequence";
  const Morphism all = call_at(model({{"dropout", 0.2}, {"window", 7}, {"cap", 3}, {"scale", 0.3}}),
                               "upper.attention#1");
  EXPECT_EQ(all.attrs.at("window"), Attr{int64_t{7}});
  EXPECT_EQ(all.attrs.at("cap"), Attr{3.0});
  EXPECT_EQ(all.attrs.at("scale"), Attr{0.3});
  EXPECT_EQ(all.attrs.at("dropout"), Attr{0.2});
  EXPECT_EQ(all.attrs.at("key"), Attr{std::string("upper.attention#1")});
  EXPECT_EQ(all.inputs.size(), 5u);
}

TEST(AttentionOptions, AnEvaluationDropsNothing) {
  const Scheme evaluated = without_randomness(all_options());
  const Morphism m = call_at(evaluated, "lower.attention#1");
  EXPECT_FALSE(m.attrs.count("dropout"));
  EXPECT_FALSE(m.attrs.count("key"));
  EXPECT_TRUE(m.attrs.count("bias"));
  EXPECT_EQ(m.inputs.size(), 6u);
}

TEST(AttentionOptions, AStepIsWhatItsMeaningSays) {
  const auto want = after_one_step("", true), got = after_one_step("", false);
  ASSERT_TRUE(want.count("lower.attention#1.bias"));
  ASSERT_TRUE(want.count("upper.attention#1.sinks"));
  for (const auto& [path, numbers] : want) {
    EXPECT_LT(relative_error(got.at(path), numbers), 2e-6) << path;
  }
}

TEST(AttentionOptions, PartsOfABatchDrawWhatTheWholeDraws) {
  const auto whole = after_one_step("", true);
  for (const char* stack : {"accumulate(2)", "accumulate(6)"}) {
    const auto parts = after_one_step(stack, true);
    const auto kernels = after_one_step(stack, false);
    for (const auto& [path, want] : whole) {
      EXPECT_LT(relative_error(parts.at(path), want), 1e-12) << stack << " " << path;
      EXPECT_LT(relative_error(kernels.at(path), want), 2e-6) << stack << " " << path;
    }
  }
}

TEST(AttentionOptions, ARecomputationHasTheSameBits) {
  const auto plain = after_one_step("", false);
  for (const auto& [path, bits] : after_one_step("checkpoint(every=1)", false)) {
    EXPECT_EQ(bits, plain.at(path)) << path;
  }
}

TEST(AttentionOptions, InBf16TheSumsOfTablesStayWide) {
  const Scheme step = training_step(all_options(), {.stack = "bf16"});
  int found = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op != "attention_grad") continue;
    ++found;
    ASSERT_EQ(m.outputs.size(), 5u);
    EXPECT_EQ(step[m.outputs[0]].type.dtype, Dtype::kBF16);
    EXPECT_EQ(step[m.outputs[3]].type.dtype, Dtype::kF32);
    EXPECT_EQ(step[m.outputs[4]].type.dtype, Dtype::kF32);
  }
  EXPECT_EQ(found, 2);
  const auto want = after_one_step("bf16", true), got = after_one_step("bf16", false);
  for (const auto& [path, numbers] : want) {
    EXPECT_LT(relative_error(got.at(path), numbers), 2e-2) << path;
  }
}

}  // namespace
}  // namespace adjoint
