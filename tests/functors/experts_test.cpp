// A mixture of experts whose tokens are dispatched: functors see linear maps like any other.
#include <gtest/gtest.h>

#include "analysis/roles.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "models/test_models.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

std::vector<Morphism> calls_of(const Scheme& scheme, const std::string& op) {
  std::vector<Morphism> calls;
  for (const Morphism& m : scheme.morphisms) {
    if (m.op == op) calls.push_back(m);
  }
  return calls;
}

int64_t flops_of(const Scheme& scheme, const std::string& op) {
  int64_t flops = 0;
  for (const Morphism& m : calls_of(scheme, op)) flops += count_flops(call_of(scheme, m));
  return flops;
}

TEST(Experts, AreMatricesOfTheFeedForward) {
  const Scheme s = test_model("mixtral");
  const Roles roles(s);
  for (const char* path : {"block[0].gate.weight", "block[1].up.weight", "block[1].down.weight"}) {
    const Value weight = s.find({path}).value();
    EXPECT_TRUE(roles.is(weight, "matrix")) << path;
    EXPECT_TRUE(roles.is_of(weight, "feed_forward")) << path;
    EXPECT_EQ(to_string(s[weight].type).substr(0, 14), "f32[experts=8,") << path;
  }
  EXPECT_TRUE(roles.is_of(s.find({"block[0].router.weight"}).value(), "router"));
  EXPECT_TRUE(roles.is_of(s.find({"block[0].q.weight"}).value(), "attention_in"));
  EXPECT_TRUE(roles.is_of(s.find({"block[0].o.weight"}).value(), "attention_out"));
}

TEST(Experts, ABiasIsAVectorForEach) {
  const Scheme s = elaborate_text(R"(axes hidden=8 experts=4 vocab=11 seq=5 batch=2
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, hidden, name=wte)
  choice = top_k(linear(x, experts, name=router), 2)
  x = expert_linear(x, choice, experts, hidden, bias=yes, name=first)
  x = expert_linear(x, choice, experts, hidden, sum=yes, name=second)
  loss = cross_entropy(linear(x, vocab), targets)
)");
  const Value bias = s.find({"first.bias"}).value();
  EXPECT_EQ(to_string(s[bias].type), "f32[experts=4, hidden=8]");
  EXPECT_TRUE(Roles(s).is(bias, "vector"));
  EXPECT_FALSE(s.find({"second.bias"}));
}

// A step multiplies by the chosen experts: once forward, and twice for the gradients.
TEST(Experts, OnlyActiveOnesAreCounted) {
  const int64_t rows = 3 * 16 * 2, once = 2 * rows * 3 * 32 * 40;
  for (const int experts : {8, 32}) {
    const Scheme step =
        training_step(test_model("mixtral", {{"layers", 1}, {"experts", experts}}), {});
    EXPECT_EQ(flops_of(step, "expert_linear"), 2 * once) << experts;
    EXPECT_EQ(flops_of(step, "expert_linear_grad"), once) << experts;
  }
}

TEST(Experts, SumsOverPartsGrowInPlaceInFloat32) {
  for (const char* stack : {"accumulate(2)", "bf16 | accumulate(2)", "fp16 | accumulate(2)"}) {
    const Scheme step = training_step(test_model("mixtral", {{"batch", 4}}), {.stack = stack});
    const std::vector<Morphism> gradients = calls_of(step, "expert_linear_grad");
    EXPECT_EQ(gradients.size(), 6u) << stack;
    for (const Morphism& m : gradients) {
      ASSERT_EQ(m.inputs.size(), 4u) << stack << ": " << to_string(m.source);
      EXPECT_EQ(step[m.outputs[0]].type.dtype, Dtype::kF32) << stack;
      EXPECT_EQ(m.section, Section::kBody);
    }
  }
}

// An epilogue of a product is for one matrix.
TEST(Experts, NoActivationIsFusedWithThem) {
  for (const char* stack : {"-recompute_cheap", "checkpoint(every=1)"}) {
    const Scheme step = training_step(test_model("mixtral"), {.stack = stack});
    EXPECT_GE(calls_of(step, "expert_linear").size(), 2u * 6) << stack;
    for (const Morphism& m : calls_of(step, "linear_act")) {
      EXPECT_EQ(step[m.inputs[1]].type.rank(), 2) << stack << ": " << to_string(m.source);
    }
  }
}

constexpr const char* kBalanced = R"(axes hidden=8 experts=4 vocab=11 batch=5 seq=6
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, hidden, name=wte)
  scores = linear(x, experts, name=router)
  loss = balance_loss(softmax(scores), top_k(scores, 2), targets)
)";

struct Balanced {
  double loss = 0;
  std::map<std::string, Numbers> gradients;
};

// One step, in which targets of some samples are all ignored, and of others some.
Balanced balanced_step(const char* stack) {
  Scheme step = training_step(elaborate_text(kBalanced),
                              {.optimizer = "sgd", .weight_decay = 0, .stack = stack});
  step = to_reference(step);
  Run run(step, make_plan(step, {.threads = num_threads()}), {.reference = true, .poison = true});
  initialize(run, 3);
  Numbers tokens(30), targets(30);
  for (int i = 0; i < 30; ++i) {
    tokens[i] = i * 7 % 11;
    targets[i] = i / 6 == 3 || i % 5 == 0 ? -1 : i % 11;
  }
  run.set_values(step.find({"tokens"}).value(), tokens);
  run.set_values(step.find({"targets"}).value(), targets);
  run.set_number(step.find({"rate"}).value(), 1);
  run.step();
  Balanced result{.loss = run.number(step.outputs[0]), .gradients = {}};
  for (const Carry& c : step.carries) {
    if (step[c.in].role != Role::kParameter) continue;
    result.gradients[to_string(step[c.in].source)] = run.values(c.out);
  }
  return result;
}

// The loss is of each sequence by itself, so no split of the batch changes it: not where parts are
// uneven and filled up with empty samples, nor where a sample of the batch counts for nothing.
TEST(BalanceLoss, IsTheSameInAnyParts) {
  const Balanced whole = balanced_step("");
  EXPECT_GT(whole.loss, 0.5);
  EXPECT_LT(whole.loss, 4);
  for (const char* stack : {"accumulate(2)", "accumulate(3)", "accumulate(5)"}) {
    const Balanced parts = balanced_step(stack);
    EXPECT_NEAR(parts.loss, whole.loss, 1e-12) << stack;
    for (const auto& [path, want] : whole.gradients) {
      EXPECT_LT(relative_error(parts.gradients.at(path), want), 1e-12) << stack << " " << path;
    }
  }
}

// Worked out by hand. Sequence 0 has choices 0 0 1 | 1 of its first three positions and its fourth,
// which is ignored; sequence 1 is ignored whole.
TEST(BalanceLoss, IsWhatItsFormulaSays) {
  Scheme s;
  const auto input = [&](Type type, const char* name) {
    return s.add_input({.type = std::move(type), .source = {name}, .role = Role::kInput});
  };
  const Value p = input({Dtype::kF32, {{"b", 2}, {"s", 4}, {"e", 2}}}, "p");
  const Value choice = input({Dtype::kI32, {{"b", 2}, {"s", 4}, {"k", 1}}}, "choice");
  const Value targets = input({Dtype::kI32, {{"b", 2}, {"s", 4}}}, "targets");
  Builder builder(s);
  s.outputs = builder.emit_all("balance_loss", {p, choice, targets}, {{"ignore", int64_t{-1}}});
  const Numbers probabilities = {.5, .5, .8, .2, .2, .8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  for (const bool reference : {true, false}) {
    const auto got = run_scheme(
        s, {probabilities, {0, 0, 1, 1, 0, 0, 0, 0}, {5, 5, 5, -1, -1, -1, -1, -1}}, reference);
    EXPECT_NEAR(got[0][0], 2 * (2. / 3 * .5 + 1. / 3 * .5), 1e-6);
    EXPECT_EQ(got[1][0], 1) << "one sequence counts";
    EXPECT_NEAR(got[2][0], 2 * (2. / 3) / 3, 1e-6);
    EXPECT_EQ(got[2][2], 0);
  }
}

}  // namespace
}  // namespace adjoint
