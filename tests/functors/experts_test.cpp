// A mixture of experts whose tokens are dispatched: functors see linear maps like any other.
#include <gtest/gtest.h>

#include "analysis/roles.h"
#include "base/error_text.h"
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

constexpr const char* kBalancedBatch = R"(axes experts=3 batch=2 seq=4 k=2
model p f32[batch, seq, experts], choice[batch, seq, k], targets[batch, seq]:
  loss = balance_loss(p, choice, targets, over=batch)
)";

// Shares of the choices of all sequences, and means over all of them: by hand, in a loop.
TEST(BalanceLoss, OverTheBatch) {
  const Scheme s = elaborate_text(kBalancedBatch);
  const Numbers choice = {0, 1, 0, 2, 0, 1, 0, 1, 2, 1, 2, 1, 0, 2, 2, 1};
  const Numbers targets = {5, 5, -1, 5, 5, -1, 5, 5};
  Numbers p(24), chosen(3), mean(3);
  for (size_t i = 0; i < p.size(); ++i) p[i] = 0.1 + 0.05 * static_cast<double>(i * 5 % 13);
  double counted = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    ++counted;
    for (size_t j = 0; j < 2; ++j) ++chosen[static_cast<size_t>(choice[row * 2 + j])];
    for (size_t e = 0; e < 3; ++e) mean[e] += p[row * 3 + e];
  }
  double wanted = 0;
  for (size_t e = 0; e < 3; ++e) wanted += 3 * chosen[e] / (2 * counted) * mean[e] / counted;
  for (const bool reference : {true, false}) {
    const auto got = run_scheme(s, {p, choice, targets}, reference);
    EXPECT_NEAR(got[0][0], wanted, 1e-6);
    EXPECT_EQ(got[1][0], 1) << "the batch counts for one";
  }
  EXPECT_TRUE(has(error_text([] {
                    std::string text = kBalancedBatch;
                    elaborate_text(text.replace(text.find("over=batch"), 10, "over=batches"));
                  }),
                  "balance_loss: over must be sequence or batch, found 'batches'"));
}

// As a term beside another loss it is divided by its own count, 1, and weighs what it is told to;
// a batch in parts would have other shares in each, and is refused.
TEST(BalanceLoss, OverTheBatchIsRefusedInParts) {
  const auto model = [](const std::string& over) {
    return elaborate_text(R"(axes hidden=8 experts=4 vocab=11 batch=4 seq=6
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, hidden, name=wte)
  scores = linear(x, experts, name=router)
  busy = balance_loss(softmax(scores), top_k(scores, 2), targets, over=)" +
                          over + R"()
  loss = cross_entropy(linear(x, vocab), targets) + 0.5*busy
)");
  };
  const auto loss = [](const Scheme& forward) {
    const Scheme step = to_reference(training_step(forward, {}));
    adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.reference = true});
    initialize(run, 3);
    Numbers tokens(24), targets(24);
    for (int i = 0; i < 24; ++i) tokens[i] = i * 7 % 11, targets[i] = i % 5 ? i % 11 : -1;
    run.set_values(step.find({"tokens"}).value(), tokens);
    run.set_values(step.find({"targets"}).value(), targets);
    run.step();
    return run.number(step.outputs[0]);
  };
  const double by_sequence = loss(model("sequence"));
  const double over_batch = loss(model("batch"));
  EXPECT_GT(std::abs(by_sequence - over_batch), 1e-6);
  EXPECT_LT(std::abs(by_sequence - over_batch), 0.5) << "both are near their weight";
  const std::string refused =
      error_text([&] { build_step(model("batch"), parse_stack("accumulate(2)"), {}); });
  EXPECT_TRUE(has(refused,
                  "balance_loss#1 needs the axis batch=4 of 'targets' whole, and that axis "
                  "holds the samples that come in parts"))
      << refused;
  EXPECT_NO_THROW(build_step(model("sequence"), parse_stack("accumulate(2)"), {}));
}

}  // namespace
}  // namespace adjoint
