// What fit recomputes in real chains, against a linear program over the same choices: options and
// states of the chain as real plans were seen to hold and take them.
#include <gtest/gtest.h>

#include "models/small_models.h"
#include "plan/blocks.h"
#include "plan/chain_milp.h"
#include "plan/fit.h"
#include "plan/flops_sheet.h"

namespace adjoint {
namespace {

// Of bytes: by how much the solver's count misses those alive, and how far above those an arena may
// be (src/plan/pack.cpp stops at half a percent, and rounds to lines).
constexpr double kModel = 0.006, kPacking = 0.01;

struct Shape {
  const char* model;
  int layers;
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.model << " of " << s.layers; }

Scheme small_chain(const Shape& shape) {
  const std::map<std::string, double> settings = {{"layers", shape.layers},
                                                  {"hidden", 32},
                                                  {"heads", 4},
                                                  {"vocab", 37},
                                                  {"batch", 4},
                                                  {"seq", 32},
                                                  {"context", 32},
                                                  {"dropout", 0.1}};
  if (std::string_view(shape.model) != "hybrid") return elaborate_preset(shape.model, settings);
  const ModelText text = find_model(std::string(SOURCE_DIR) + "/tests/models/hybrid.scheme");
  return elaborate(parse_document(text.text, text.file), text.file, {.settings = settings});
}

class FitChain : public ::testing::TestWithParam<Shape> {};

TEST_P(FitChain, RecomputesTheOptimum) {
  SKIP_WITHOUT_MILP();
  const Scheme forward = small_chain(GetParam());
  // What the default functor would recompute beside is no choice of the chain's, and what fuse
  // spares of a recomputation is not in its sums.
  const StepOptions step{.stack = "accumulate(1) | -recompute_cheap | -fuse"};
  Fit fit(forward, {.step = step, .costs = {.sheet = flops_sheet()}, .batch = 4});
  const ChainProblem* problem = fit.chain_problem();
  ASSERT_NE(problem, nullptr);
  ASSERT_EQ(problem->blocks, GetParam().layers);
  // Thousands of FLOPs: near 1, so that the solver's tolerances are small beside them.
  const auto cost = [&](int o, StateChoice s) {
    return seconds_of(*problem, o, s) * kFlopsPerSecond / 1e3;
  };
  // The optimum; its lower bound where the whole program would take minutes.
  const auto optimum = [&](int64_t bytes) {
    if (problem->blocks > 4) return milp_bound(*problem, bytes, cost).value();
    return milp_choice(*problem, bytes, [&](int, int o, StateChoice s) { return cost(o, s); })
        .value()
        .cost;
  };
  const auto built = [&](const std::string& stack) {
    TimedStep real;
    real.scheme = training_step(forward, {.stack = stack});
    real.plan = make_plan(real.scheme, {});
    real.time = predict_time(real.scheme, real.plan, {.sheet = flops_sheet()});
    return real;
  };
  const int64_t least = smallest_budget(*problem), plain = fit.plain().peak.count;
  for (const double share : {0.1, 0.5}) {
    const auto goal = static_cast<int64_t>(least + share * static_cast<double>(plain - least));
    SCOPED_TRACE("goal " + std::to_string(goal));
    const auto choice = solve(*problem, goal);
    ASSERT_TRUE(choice);
    const double wanted = choice->cost * kFlopsPerSecond / 1e3, rounding = 1e-6 * wanted;
    EXPECT_NEAR(wanted, optimum(goal), rounding);
    // Built and planned, that choice recomputes what the program says and holds what it says.
    const TimedStep real = built(fit.stack_of(*choice));
    EXPECT_NEAR(real.time.recomputed_flops / 1e3, wanted, rounding);
    EXPECT_NEAR(static_cast<double>(real.plan.live_peak.count), static_cast<double>(choice->peak),
                kModel * static_cast<double>(choice->peak));
    // With the bytes of its arena fit does as well, but for what packing adds to bytes alive.
    const Bytes budget = real.plan.arena;
    const auto found = fit.best(budget);
    ASSERT_TRUE(found);
    EXPECT_LE(found->peak, budget);
    const double flops = found->recomputed_flops / 1e3;
    const auto tight = static_cast<int64_t>((1 - kPacking) * static_cast<double>(budget.count));
    const double least_flops = optimum(budget.count);
    EXPECT_GE(flops, least_flops - rounding);
    // Of choices that cost the same, or nearly, one may pack well and another not.
    EXPECT_LE(flops, std::max(wanted, optimum(tight)) + rounding);
    std::cout << "  " << budget.count << " bytes: " << flops << " kFLOPs, optimum " << least_flops
              << " packed without a gap, " << wanted << " as packed\n";
  }
  // What people do by hand recomputes more for the same bytes.
  const TimedStep by_hand = built(step.stack + " | checkpoint(sqrt)");
  const auto found = fit.best(by_hand.plan.arena);
  ASSERT_TRUE(found);
  EXPECT_LE(found->peak, by_hand.plan.arena);
  const double flops = by_hand.time.recomputed_flops;
  EXPECT_LE(found->recomputed_flops, flops);
  const auto chosen = solve(*problem, by_hand.plan.live_peak.count);
  ASSERT_TRUE(chosen);
  EXPECT_LE(chosen->cost * kFlopsPerSecond, flops * (1 + 1e-9)) << "and not because it is tried";
}

// The menu of a block, against all sets of its tensors: none is better than an option or, where
// there are too many to plan, than blocks that mix two of them.
TEST(Blocks, NoSetOfTensorsBeatsTheMenu) {
  const Costs costs{.sheet = flops_sheet()};
  for (const char* model : {"char", "llama-tiny", "hybrid"}) {
    SCOPED_TRACE(model);
    const Blocks blocks(
        said_step(small_chain({model, 2}), parse_stack("accumulate(1) | -recompute_cheap"), {}),
        costs);
    ASSERT_TRUE(blocks.can_choose());
    const int groups = blocks.num_groups(), sets = 1 << groups;
    ASSERT_LE(groups, 16);
    std::vector<Blocks::Worth> menu;
    for (int o = 0; o < blocks.num_options(); ++o) menu.push_back(blocks.worth_of(o));
    int between = 0;
    for (int set = 0; set < sets; ++set) {
      std::vector<bool> kept;
      for (int g = 0; g < groups; ++g) kept.push_back(set >> g & 1);
      const Blocks::Worth mine = blocks.worth_of(kept);
      bool reached = false;
      double mixed = std::numeric_limits<double>::infinity();  // seconds for the same bytes
      for (const Blocks::Worth& a : menu) {
        reached = reached || (a.kept <= mine.kept && a.seconds <= mine.seconds * (1 + 1e-9));
        for (const Blocks::Worth& b : menu) {
          if (a.kept > mine.kept || b.kept <= mine.kept) continue;
          const double share = (mine.kept - a.kept) / (b.kept - a.kept);
          mixed = std::min(mixed, a.seconds * (1 - share) + b.seconds * share);
        }
      }
      if (!reached) ++between;
      EXPECT_TRUE(reached || mixed <= mine.seconds * (1 + 1e-9))
          << mine.kept << " bytes, " << mine.seconds * kFlopsPerSecond << " FLOPs";
    }
    std::cout << "  " << model << ": " << groups << " groups, " << menu.size() << " options; "
              << between << " sets of " << sets << " lie between two of them\n";
    if (menu.size() < 24) {
      EXPECT_EQ(between, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FitChain,
                         ::testing::Values(Shape{"char", 4}, Shape{"char", 12},
                                           Shape{"llama-tiny", 2}, Shape{"llama-tiny", 6},
                                           Shape{"hybrid", 9}));

}  // namespace
}  // namespace adjoint
