// The scheme that judges: the same inputs and outputs as what it judges, in float64 throughout,
// with every fused op as its meaning; and the schemes that are evaluated and sampled from.
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "functors/evaluation.h"
#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/backend.h"
#include "kernels/harness.h"
#include "models/elaborate.h"

namespace adjoint {
namespace {

constexpr const char* kModel = R"(scheme model:
  input %0 tokens: i32[b=2, s=3]
  input %1 targets: i32[b=2, s=3]
  parameter %2 table: f32[v=7, h=4] init=normal(0.5)
  parameter %3 qkv.weight: f32[w=12, h=4] init=normal(0.5)
  parameter %4 qkv.bias: f32[w=12] init=normal(0.5)
  parameter %5 temperature: f32[] init=ones
  control %6 random: i64[counter=3]
  %7 x: f32[b=2, s=3, h=4] = embed(%0, %2) @x
  %8 qkv: f32[b=2, s=3, w=12] = linear(%7, %3, %4) @qkv
  %9 a: f32[b=2, s=3, heads*size=4], %10 a.lse: f32[b=2, kv_heads=2, group=1, s=3] = attention(%8) {causal=1, heads=2, kv_heads=2} @a
  %11 d: f32[b=2, s=3, heads*size=4] = dropout(%9, %6) {key="d", rate=0.25} @d
  %12 z: f32[b=2, s=3, h=4] = add(%7, %11) @z
  %13 logits: f32[b=2, s=3, v=7] = linear(%12, %2) @logits
  %14 scaled: f32[b=2, s=3, v=7] = mul(%13, %5) @scaled
  %15 loss: f32[] metric, %16 loss.count: f32[] metric, %17 loss.lse: f32[b=2, s=3] = cross_entropy(%14, %1) {ignore=-1} @loss
  return %15, %16
)";

Scheme model() {
  Scheme s = parse_scheme(kModel);
  verify(s);
  return s;
}

std::vector<std::string> names(const Scheme& s, const std::vector<Value>& values) {
  std::vector<std::string> all;
  for (const Value v : values) {
    all.push_back(std::string(name(s[v].role)) + " " + to_string(s[v].source) + " " +
                  shape_string(s[v].type));
  }
  return all;
}

TEST(Reference, KeepsInputsOutputsAndCarries) {
  for (const Scheme& s : {model(), training_step(model(), {})}) {
    const Scheme r = to_reference(s);
    EXPECT_EQ(names(r, r.inputs), names(s, s.inputs));
    EXPECT_EQ(names(r, r.outputs), names(s, s.outputs));
    ASSERT_EQ(r.carries.size(), s.carries.size());
    for (size_t i = 0; i < s.carries.size(); ++i) {
      EXPECT_EQ(r[r.carries[i].in].source, s[s.carries[i].in].source);
      EXPECT_EQ(r[r.carries[i].out].source, s[s.carries[i].out].source);
    }
  }
}

TEST(Reference, IsFloat64Throughout) {
  const Scheme r = to_reference(training_step(model(), {}));
  for (const Object& o : r.objects) {
    const Dtype dtype = o.type.dtype;
    EXPECT_TRUE(dtype == Dtype::kF64 || !is_float(dtype)) << to_string(o.source);
  }
  EXPECT_EQ(r[*r.find({"tokens"})].type.dtype, Dtype::kI32);
  EXPECT_EQ(r[*r.find({"random"})].type.dtype, Dtype::kI64);
}

TEST(Reference, WidensDtypesThatStandInAttributes) {
  const Scheme r = to_reference(parse_scheme(R"(scheme:
  input %0 x: f32[n=4]
  %1 low: bf16[n=4] = cast(%0) {dtype="bf16"} @low
  %2 both: f32[n=4], %3 ids: i32[n=4] = map(%1) {body="x0/f32, x0/i32"} @both
  %4 ones: f32[n=4] = fill() {shape=[4], value=1.0} @ones
  return %2, %3, %4
)"));
  EXPECT_EQ(print(r), R"(scheme:
  input %0 x: f64[n=4]
  %5 low:exact: f64[n=4] = cast(%0) {dtype="f64"} @low
  %1 low: f64[n=4] = map(%5) {body="round2(x0)/f64"} @low
  %2 both: f64[n=4], %3 ids: i32[n=4] = map(%1) {body="x0/f64, x0/i32"} @both
  %4 ones: f64[n=4] = fill() {dtype="f64", shape=[4], value=1.0} @ones
  return %2, %3, %4
)");
}

// What is stored in 16 bits is rounded, whoever makes it; what a kernel holds inside is not.
TEST(Reference, RoundsWhatIsStoredAndNothingElse) {
  const Scheme r = to_reference(parse_scheme(R"(scheme:
  input %0 x: bf16[n=3, h=4]
  parameter %1 w: bf16[o=2, h=4]
  parameter %2 b: bf16[o=2]
  %3 y: bf16[n=3, o=2] = linear(%0, %1, %2) @y
  %4 s: bf16[n=3, p=1, o=2] = split(%3) {parts=1} @s
  %5 g: f32[o=2, h=4] gradient = contract(%3, %0) {dtype="f32", map="no,nh->oh"} @y:grad backward
  return %4, %5
)"));
  EXPECT_EQ(print(r), R"(scheme:
  input %0 x: f64[n=3, h=4]
  parameter %1 w: f64[o=2, h=4]
  parameter %2 b: f64[o=2]
  %6 y.meaning: f64[n=3, o=2] = contract(%0, %1) {map="ai,oi->ao"} @y.meaning
  %7 y:exact: f64[n=3, o=2] = add(%6, %2) @y.meaning
  %3 y: f64[n=3, o=2] = map(%7) {body="round2(x0)/f64"} @y
  %4 s: f64[n=3, p=1, o=2] = split(%3) {parts=1} @s
  %5 g: f64[o=2, h=4] gradient = contract(%3, %0) {dtype="f64", map="no,nh->oh"} @y:grad backward
  return %4, %5
)");
}

TEST(Reference, KeepsSectionsEpochsAndLoops) {
  const Scheme r = to_reference(parse_scheme(R"(scheme s parts=2:
  input %0 x: f32[n=3, h=4]
  parameter %1 w: f32[h=4, h=4]
  %2 begin: f32[n=3, h=4] = fill() {shape=[3, 4], value=0.0} @begin prologue
  %3 y: f32[n=3, h=4] = add(%0, %2) @y
  %4 sum: f32[n=3, h=4] = linear(%3, %1) @sum epoch=3
  %5 end: f32[n=3, h=4] = linear(%4, %1) @end epilogue
  loop %2 -> %4
  return %5
)"));
  ASSERT_EQ(r.loop.size(), 1u);
  EXPECT_EQ(to_string(r[r.loop[0].in].source), "begin");
  EXPECT_EQ(to_string(r[r.loop[0].out].source), "sum");
  EXPECT_EQ(r.parts, 2);
  ASSERT_EQ(r.morphisms.size(), 4u);
  EXPECT_EQ(r.morphisms[0].section, Section::kPrologue);
  EXPECT_EQ(r.morphisms[2].op, "contract");
  EXPECT_EQ(r.morphisms[2].epoch, 3);
  EXPECT_EQ(r.morphisms[3].op, "contract");
  EXPECT_EQ(r.morphisms[3].section, Section::kEpilogue);
}

TEST(Reference, HasNoOpWithoutAReferenceOfItsOwn) {
  std::set<std::string> ops;
  for (const Morphism& m : to_reference(training_step(model(), {})).morphisms) {
    EXPECT_TRUE(op_named(m.op).body || reference_backend().find(m.op)) << m.op;
    ops.insert(m.op);
  }
  EXPECT_EQ(ops.count("linear") + ops.count("attention") + ops.count("attention_grad"), 0u);
  EXPECT_EQ(ops.count("contract"), 1u);
}

TEST(Reference, OfAReferenceIsItself) {
  const Scheme once = to_reference(training_step(model(), {}));
  EXPECT_EQ(print(to_reference(once)), print(once));
}

// The numbers of the whole step, one and the other way.
TEST(Reference, AgreesWithTheStepItJudges) {
  const Scheme step = training_step(model(), {.clip = 0.5});
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<Numbers> x;
  for (const Value in : step.inputs) {
    Numbers numbers(step[in].type.num_elements());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Object& o = step[in];
      numbers[i] = o.role == Role::kInput       ? static_cast<double>(i % 7)
                   : o.role == Role::kParameter ? static_cast<double>(normal(random))
                   : o.source.path == "rate"    ? 0.125
                   : o.source.path == "scale"   ? 1.0
                                                : 0.0;
    }
    x.push_back(std::move(numbers));
  }
  const auto want = run_scheme(step, x, true), got = run_scheme(step, x, false);
  for (size_t k = 0; k < want.size(); ++k) {
    EXPECT_LT(relative_error(got[k], want[k]), 2e-6) << to_string(step[step.outputs[k]].source);
  }
}

TEST(LogitsOf, EndsBeforeTheLoss) {
  const Scheme s = logits_of(model());
  verify(s);
  ASSERT_EQ(s.outputs.size(), 1u);
  EXPECT_EQ(to_string(s[s.outputs[0]].source), "scaled");
  for (const Morphism& m : s.morphisms) EXPECT_NE(m.op, "cross_entropy");
  const Scheme whole = model();
  EXPECT_EQ(names(s, s.inputs), names(whole, whole.inputs)) << "a run binds the same inputs";
}

// What is sampled from is what the loss takes the softmax of.
TEST(LogitsOf, AreCappedAsTheLossCapsThem) {
  const Scheme s = logits_of(parse_scheme(R"(scheme:
  input %0 x: f32[n=1, v=3]
  input %1 t: i32[n=1]
  %2 loss: f32[] metric, %3 loss.count: f32[] metric, %4 loss.lse: f32[n=1] = cross_entropy(%0, %1) {cap=2, ignore=-1, z=0.5} @loss
  return %2, %3
)"));
  verify(s);
  const Numbers got = run_scheme(s, {{-5, 0.5, 3}, {0}}, true)[0];
  for (const auto& [i, x] : std::vector<std::pair<int, double>>{{0, -5}, {1, 0.5}, {2, 3}}) {
    EXPECT_NEAR(got[i], 2 * std::tanh(x / 2), 1e-12);
  }
}

TEST(LogitsOf, OfSeveralLossesTheFirst) {
  const Scheme s = logits_of(parse_scheme(R"(scheme:
  input %0 x: f32[n=1, v=3]
  input %1 y: f32[n=1, v=5]
  input %2 t: i32[n=1]
  %3 loss: f32[] metric, %4 loss.count: f32[] metric, %5 loss.lse: f32[n=1] = cross_entropy(%0, %2) {ignore=-1} @loss
  %6 other: f32[] metric, %7 other.count: f32[] metric, %8 other.lse: f32[n=1] = cross_entropy(%1, %2) {ignore=-1} @other
  %9 sum: f32[] = add(%3, %6) @sum
  return %9, %4
)"));
  verify(s);
  EXPECT_EQ(s.outputs, std::vector<Value>{0});
  EXPECT_THROW(logits_of(parse_scheme("scheme:\n  input %0 x: f32[n=1]\n  return %0\n")), Error);
}

// A head that predicts later tokens is no next token, wherever it stands in the text.
TEST(LogitsOf, AreThoseOfTheNextToken) {
  const auto forward = [](const std::string& loss) {
    const std::string text =
        "axes hidden=4 context=3 vocab=7\n"
        "model tokens[batch, seq], targets[batch, seq]:\n"
        "  x = embed(tokens, vocab, name=wte)\n"
        "  later = cross_entropy(linear(x, vocab, name=far), shift(targets, -1, fill=-1))\n"
        "  loss = " +
        loss + "\n";
    return elaborate(parse_document(text, "m.scheme"), "m.scheme", {.settings = {{"batch", 2}}});
  };
  for (const std::string targets : {"targets", "where(tokens < 3, targets, -1)"}) {
    const Scheme both = forward("later + 0.5*cross_entropy(linear(x, vocab, name=near), " +
                                targets + ", smoothing=0.1)");
    const Scheme logits = logits_of(both), likelihood = likelihood_of(both);
    EXPECT_TRUE(to_string(logits[logits.outputs[0]].source).starts_with("near")) << targets;
    int64_t losses = 0;
    for (const Morphism& m : likelihood.morphisms) {
      if (!op_named(m.op).loss) continue;
      ++losses;
      EXPECT_EQ(m.attrs.count("smoothing"), 0u);
      EXPECT_EQ(likelihood.outputs, (std::vector<Value>{m.outputs[0], m.outputs[1]}));
    }
    EXPECT_EQ(losses, 1) << targets;
  }
  for (const auto& use : {logits_of, likelihood_of}) {
    const std::string error = error_text([&] { use(forward("later")); });
    EXPECT_TRUE(has(error, "has a cross_entropy of targets, the next tokens; ")) << error;
    EXPECT_TRUE(has(error, "predicts something else")) << error;
  }
}

TEST(WithoutRandomness, PassesTheFirstOperandOn) {
  const Scheme before = parse_scheme(R"(scheme:
  input %0 x: f32[n=4]
  control %1 random: i64[counter=3]
  %2 a: f32[n=4] = gelu(%0) @a
  %3 d: f32[n=4] = dropout(%2, %1) {key="d", rate=0.5} @d
  %4 e: f32[n=4] = dropout(%3, %1) {key="e", rate=0.5} @e
  %5 y: f32[n=4] = exp(%4) @y
  return %5, %4
)");
  EXPECT_EQ(print(without_randomness(before)), R"(scheme:
  input %0 x: f32[n=4]
  control %1 random: i64[counter=3]
  %2 a: f32[n=4] = gelu(%0) @a
  %3 y: f32[n=4] = exp(%2) @y
  return %3, %2
)");
}

}  // namespace
}  // namespace adjoint
