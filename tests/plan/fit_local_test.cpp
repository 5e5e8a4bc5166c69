// Schemes in which nothing repeats: what the local search finds, beside the best of all sets of
// recomputed tensors, each built and planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "analysis/structure.h"
#include "models/small_models.h"
#include "ops/op_def.h"
#include "plan/fit.h"
#include "plan/flops_sheet.h"

namespace adjoint {
namespace {

// Updates one by one: in one pass all gradients live to the same call, and how well so few tensors
// pack then hides what the search is asked about.
constexpr const char* kStack = "accumulate(1) | -recompute_cheap | -gang_updates";
constexpr size_t kMost = 9;  // tensors of which all sets are planned

// Layers that narrow and widen, so that no two are alike.
constexpr const char* kFunnel = R"(axes vocab=41 context=16
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, 24, name=wte)
  a = gelu(linear(x, 96, name=a))
  b = silu(linear(a, 56, name=b))
  c = gelu(linear(b, 120, name=c))
  loss = cross_entropy(linear(c, vocab, name=readout), targets)
)";
// Ways that part and meet, with rows of arithmetic between.
constexpr const char* kBranches = R"(axes vocab=41 context=16
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, 32, name=wte)
  n = rms_norm(x)
  u = silu(linear(n, 64, name=u)) * linear(n, 64, name=v)
  y = linear(u, 32, name=down) + x
  loss = cross_entropy(linear(layer_norm(y), vocab, name=readout), targets)
)";

struct Found {
  std::string stack;
  int64_t peak;
  double seconds, flops;
};

Found planned(const Scheme& forward, const std::string& stack) {
  const Scheme step = training_step(forward, {.stack = stack});
  const Plan plan = make_plan(step, {});
  const StepTime time = predict_time(step, plan, {.sheet = flops_sheet()});
  return {stack, plan.arena.count, time.step, time.recomputed_flops};
}

// Tensors of the forward pass, made from data, that the backward reads, largest first.
std::vector<std::string> choices(const Scheme& forward) {
  const Scheme step = training_step(forward, {.stack = kStack});
  const std::vector<bool> from_data = depends_on_data(step);
  std::set<Value> read;
  for (const Morphism& m : step.morphisms) {
    if (m.phase != Phase::kForward) read.insert(m.inputs.begin(), m.inputs.end());
  }
  std::vector<std::pair<int64_t, std::string>> named;
  for (const Morphism& m : step.morphisms) {
    if (m.phase != Phase::kForward || op_named(m.op).view) continue;
    if (op_named(m.op).effect != Effect::kPure) continue;
    for (const Value out : m.outputs) {
      if (read.count(out) && from_data[out] && step[out].type.rank() > 0) {
        named.emplace_back(-step[out].type.bytes().count, to_string(step[out].source));
      }
    }
  }
  std::sort(named.begin(), named.end());
  std::vector<std::string> names;
  for (const auto& [bytes, name] : named) names.push_back(name);
  return names;
}

class FitLocally : public ::testing::TestWithParam<const char*> {};

TEST_P(FitLocally, ComesNearTheBestOfAllSets) {
  const Scheme forward = elaborate_text(GetParam(), {.settings = {{"batch", 8}}});
  const std::vector<std::string> names = choices(forward);
  const size_t n = names.size();
  ASSERT_GE(n, 6u);
  ASSERT_LE(n, kMost);
  std::vector<Found> all;
  for (size_t set = 0; set < size_t{1} << n; ++set) {
    std::string again;
    for (size_t k = 0; k < n; ++k) {
      if (set >> k & 1) again += (again.empty() ? "\"" : ", \"") + names[k] + "\"";
    }
    all.push_back(planned(forward, again.empty()
                                       ? kStack
                                       : std::string(kStack) + " | reside(again=[" + again + "])"));
  }
  const FitOptions options{
      .step = {.stack = kStack}, .costs = {.sheet = flops_sheet()}, .batch = 8};
  Fit fit(forward, options);
  ASSERT_EQ(fit.chain_problem(), nullptr) << "nothing repeats here";
  int64_t least = all[0].peak;
  for (const Found& f : all) least = std::min(least, f.peak);
  const int64_t plain = all[0].peak, smallest = fit.smallest().peak.count;
  std::cout << "  " << n << " tensors, smallest " << smallest << ", of all sets " << least
            << ", plain " << plain << "\n";
  double worst = 0, sum = 0;
  constexpr int kBudgets = 6;
  for (int k = kBudgets; k-- > 0;) {
    const int64_t from = std::max(least, smallest);
    const int64_t budget = from + (plain - from) * k / kBudgets;
    const Found* best = nullptr;
    for (const Found& f : all) {
      if (f.peak <= budget && (!best || f.seconds < best->seconds)) best = &f;
    }
    const auto found = Fit(forward, options).best({budget});  // anew: nothing is known before
    ASSERT_TRUE(found && best);
    EXPECT_LE(found->peak.count, budget);
    const double gap = found->seconds / best->seconds - 1;
    worst = std::max(worst, gap), sum += gap;
    if (gap > 1e-6) std::cout << "  found " << found->stack << "\n  best  " << best->stack << "\n";
    std::cout << "  " << budget << " bytes: step " << 100 * gap << "% above the best, recomputed "
              << found->recomputed_flops << " FLOPs of " << best->flops << "\n";
  }
  std::cout << "  gap " << 100 * sum / kBudgets << "% on average, " << 100 * worst << "% at most\n";
  EXPECT_LE(worst, 0.01);  // seen: 0.7% at one budget of twelve, 0 at the others
}
INSTANTIATE_TEST_SUITE_P(Schemes, FitLocally, ::testing::Values(kFunnel, kBranches));

}  // namespace
}  // namespace adjoint
