// join_projections, fuse_epilogue and chunk_readout hold their law on a tiny GPT-2 and a tiny
// Llama, dropout on, targets masked, three seeds: per tensor, the error against float64 is at most
// 4 times that of the same stack without them.
#include <gtest/gtest.h>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "train/bound_model.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

constexpr const char* kPlain = "-join_projections | -fuse_epilogue | -chunk_readout";

struct Model {
  std::string name;
  nlohmann::json settings;
  int64_t batch, context, vocab;
};
std::vector<Model> models() {
  return {{"char",
           {{"layers", 2}, {"hidden", 48}, {"heads", 3}, {"vocab", 37}, {"dropout", 0.1}},
           3,
           20,
           37},
          {"llama-tiny", {{"layers", 2}, {"vocab", 41}, {"dropout", 0.1}}, 3, 20, 41},
          {"llama-tiny", {{"layers", 2}, {"vocab", 41}, {"tied", 1}, {"dropout", 0.1}}, 1, 20, 41}};
}

Scheme forward_of(const Model& m) {
  const ModelSizes sizes{.batch = m.batch, .context = m.context, .settings = m.settings};
  return BoundModel(find_model(m.name), sizes).forward();
}

// A step whose outputs are also every parameter's gradient and what the parameter becomes.
Scheme traced(const Model& m, const std::string& stack) {
  Scheme step = training_step(forward_of(m), {.stack = stack});
  for (const Value in : std::vector<Value>(step.inputs)) {
    if (step[in].role != Role::kParameter || step[in].frozen) continue;
    const auto gradient = step.find({step[in].source.path, "grad"});
    EXPECT_TRUE(gradient) << to_string(step[in].source);
    step.outputs.push_back(*gradient);
  }
  return step;
}

std::vector<Numbers> run_step(const Scheme& scheme, const Model& m, bool reference, unsigned seed) {
  const Scheme s = reference ? to_reference(scheme) : scheme;
  Run run(s, make_plan(s, {.threads = num_threads()}), {.reference = reference, .poison = true});
  run.fill_arena(std::byte{0xff});
  initialize(run, seed);
  for (const Value in : s.inputs) {
    // Both begin with the same numbers, the float32 ones.
    if (!s[in].init) continue;
    Numbers x = run.values(in);
    for (double& v : x) v = static_cast<float>(v);
    run.set_values(in, x);
  }
  run.set_number(input_named(s, "scale"), 1);
  run.set_number(input_named(s, "rate"), 1e-3);
  std::mt19937 random(seed);
  for (const char* name : {"tokens", "targets"}) {
    auto* ids = static_cast<int32_t*>(run.data(input_named(s, name)));
    for (int64_t i = 0; i < m.batch * m.context; ++i) {
      ids[i] = static_cast<int32_t>(random() % m.vocab);
      if (name[1] == 'a' && random() % 7 == 0) ids[i] = -1;
    }
  }
  if (const Value counter = input_named(s, kRandomCounter); counter >= 0) {
    run.set_values(counter, {static_cast<double>(seed), 2, 0});
  }
  run.step();
  std::vector<Numbers> outputs;
  for (const Value out : s.outputs) outputs.push_back(run.values(out));
  return outputs;
}

int count(const Scheme& s, std::string_view op) {
  int n = 0;
  for (const Morphism& m : s.morphisms) n += m.op == op;
  return n;
}

TEST(RewriteLaw, ErrorsAreThoseOfThePlainStep) {
  double worst = 0;
  for (const Model& model : models()) {
    const Scheme plain = traced(model, kPlain);
    ASSERT_EQ(count(plain, "concat") + count(plain, "linear_act"), 0);
    const std::vector<std::string> stacks = {
        "-fuse_epilogue | -chunk_readout",                              // join_projections
        "-join_projections | -fuse_epilogue | chunk_readout(rows=7)",   // pieces of samples
        "-join_projections | -fuse_epilogue | chunk_readout(rows=45)",  // two samples, then one
        "-join_projections | -chunk_readout | -recompute_cheap",        // fuse_epilogue
        "chunk_readout(rows=9)"};                                       // all three
    for (const unsigned seed : {1u, 2u, 3u}) {
      const auto want = run_step(plain, model, true, seed);
      const auto base = run_step(plain, model, false, seed);
      for (const std::string& stack : stacks) {
        const Scheme step = traced(model, stack);
        ASSERT_EQ(step.outputs.size(), plain.outputs.size());
        const auto got = run_step(step, model, false, seed);
        for (size_t k = 0; k < want.size(); ++k) {
          // Not better than a few roundings of float32.
          const double allowed = 4 * std::max(relative_error(base[k], want[k]), 1e-7);
          const double error = relative_error(got[k], want[k]);
          worst = std::max(worst, error / allowed * 4);
          EXPECT_LE(error, allowed) << model.name << " " << stack << " seed " << seed << ": "
                                    << to_string(step[step.outputs[k]].source);
        }
      }
    }
  }
  std::printf("worst error: %.2f times the plain step's\n", worst);
}

// The reference of a rewritten step is the same function: float64 to float64.
TEST(RewriteLaw, TheReferenceIsTheSameFunction) {
  for (const Model& model : models()) {
    const auto want = run_step(traced(model, kPlain), model, true, 5);
    const auto got = run_step(traced(model, "chunk_readout(rows=9)"), model, true, 5);
    for (size_t k = 0; k < want.size(); ++k) EXPECT_LT(relative_error(got[k], want[k]), 1e-12);
  }
}

// With the rest of the house: nothing here knows of these, and each must find what it needs.
TEST(RewriteLaw, HoldsUnderOtherFunctors) {
  for (Model model : models()) {
    model.batch = 4;
    for (const auto& [stack, within] : std::vector<std::pair<std::string, double>>{
             {"accumulate(2)", 1e-5},
             {"accumulate(3)", 1e-5},
             {"checkpoint(every=block)", 1e-5},
             {"bf16", 5e-2},
             {"bf16 | accumulate(2) | checkpoint(every=block)", 5e-2},
             {"lora(rank=4) | quantize(int8, group=8)", 1e-5}}) {
      const Scheme plain = traced(model, stack + " | " + kPlain);
      const Scheme step = traced(model, stack + " | chunk_readout(rows=9)");
      ASSERT_EQ(step.outputs.size(), plain.outputs.size());
      EXPECT_GT(count(step, "cross_entropy"), count(plain, "cross_entropy")) << stack;
      const auto want = run_step(plain, model, false, 3), got = run_step(step, model, false, 3);
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_LT(relative_error(got[k], want[k]), within)
            << model.name << " " << stack << ": " << to_string(step[step.outputs[k]].source);
        const Type &made = step[step.outputs[k]].type, &type = plain[plain.outputs[k]].type;
        EXPECT_TRUE(same_shape(made, type) && made.dtype == type.dtype) << to_string(made);
      }
    }
  }
}

// fuse_epilogue is more than its law says, on the CPU: the same bits.
TEST(RewriteLaw, TheCpuFusesEpiloguesToTheBit) {
  // A function that is to be computed again is not fused: repeating it must stay cheap.
  const Model model = models()[0];
  EXPECT_EQ(count(traced(model, "recompute_cheap(within=1) | -join_projections | -chunk_readout"),
                  "linear_act"),
            0);
  const std::string kept = "-recompute_cheap | ";
  const Scheme fused = traced(model, kept + "-join_projections | -chunk_readout");
  EXPECT_EQ(count(fused, "linear_act"), 2);
  EXPECT_EQ(run_step(fused, model, false, 1),
            run_step(traced(model, kept + kPlain), model, false, 1));
}

TEST(RewriteLaw, WhatBecomesOfALlamaBlock) {
  const Model model = models()[1];
  const Scheme step = traced(model, "chunk_readout(rows=20)");
  // q, k and v are one, gate and up are one: 2 forward, 4 concats of weights, and 2 of gradients a
  // block; h's gradient is one more.
  EXPECT_EQ(count(step, "concat"), 2 * 2 + 2 * 2 + 1);
  EXPECT_EQ(count(step, "pad"), 0);
  const Plan plan = make_plan(step, {.threads = num_threads()});
  int copies = 0;
  for (const PlannedCall& call : plan.calls) {
    const std::string& op = step.morphisms[call.morphism].op;
    copies += (op == "concat" || op == "slice" || op == "split" || op == "merge") && !call.is_view;
  }
  EXPECT_EQ(copies, 0) << "nothing is copied";
  // Joined gradients of gate and up exist together, where single ones came one after the other;
  // chunks of the logits make up for it. (A model this small is a fair part workspaces.)
  const Plan plain = make_plan(traced(model, kPlain), {.threads = num_threads()});
  EXPECT_LT(static_cast<double>(plan.live_peak.count),
            1.02 * static_cast<double>(plain.live_peak.count));
}

// Evaluation is chunked too, and gives the same pair.
TEST(RewriteLaw, AnEvaluationIsChunkedToo) {
  const Model model = models()[0];
  const auto evaluated = [&](const std::string& stack) {
    const Scheme s = evaluation_scheme(forward_of(model), parse_stack(stack), {});
    adjoint::Run run(s, make_plan(s, {.threads = num_threads()}), {.poison = true});
    initialize(run, 3);
    for (const char* name : {"tokens", "targets"}) {
      auto* ids = static_cast<int32_t*>(run.data(input_named(s, name)));
      for (int64_t i = 0; i < model.batch * model.context; ++i)
        ids[i] = (i * 7) % 31 - (i % 5 == 0);
    }
    auto* tokens = static_cast<int32_t*>(run.data(input_named(s, "tokens")));
    for (int64_t i = 0; i < model.batch * model.context; ++i)
      tokens[i] = static_cast<int32_t>(i % 37);
    run.step();
    return std::pair{run.number(s.outputs[0]), run.number(s.outputs[1])};
  };
  const auto [sum, n] = evaluated(kPlain);
  const auto [chunked, m] = evaluated("chunk_readout(rows=7)");
  EXPECT_EQ(n, m);
  EXPECT_NEAR(chunked, sum, 1e-5 * sum);
}

}  // namespace
}  // namespace adjoint
