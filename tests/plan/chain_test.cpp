// The dynamic program over chains against two judges that know nothing of it: a linear program with
// whole numbers, and for few blocks every choice there is.
#include "plan/chain.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "plan/chain_milp.h"

namespace adjoint {
namespace {

int below(std::mt19937& random, int n) { return static_cast<int>(random() % n); }

// Whole numbers throughout, so that sums are exact in every order. Work may be small beside what is
// kept or large, so that now one row binds and now another.
ChainProblem random_problem(std::mt19937& random, int blocks, int options) {
  ChainProblem p{.blocks = blocks};
  p.state = 1 + below(random, 12);
  if (random() % 2) p.state_cost = below(random, 20);
  p.outside_all = below(random, 60);
  p.outside_none = below(random, 40);
  const int work = 1 + below(random, 60);
  for (int o = 0; o < options; ++o) {
    BlockOption option{.kept = below(random, 40), .held = below(random, 40)};
    option.cost = below(random, 50);
    option.through = option.cost + below(random, 30);
    for (int b = 0; b < blocks; ++b) {
      option.forward.push_back(below(random, work));
      option.backward.push_back(below(random, work) + option.kept);
    }
    p.options.push_back(option);
  }
  return p;
}

// Budgets around what matters: too small, the smallest, tight, loose.
std::vector<int64_t> budgets_of(const ChainProblem& p, std::mt19937& random) {
  const int64_t least = smallest_budget(p);
  const int64_t most = std::max(p.blocks * (40 + p.state) + 120, least + 1);
  std::vector<int64_t> budgets = {least - 1, least, most};
  for (int k = 0; k < 3; ++k) {
    budgets.push_back(least + below(random, static_cast<int>(most - least) / (k + 1) + 1));
  }
  return budgets;
}

// What peak_of should say, counted moment by moment from the definition: forwards in order, then
// segments from the last one on, each recomputed whole and taken back block by block.
int64_t peak_by_hand(const ChainProblem& p, const ChainChoice& c) {
  std::vector<int64_t> kept(p.blocks), again(p.blocks);
  for (int b = 0; b < p.blocks; ++b) {
    const bool last = b + 1 == p.blocks, stays = c.state[b] == StateChoice::kKept && !last;
    kept[b] = p.options[c.option[b]].kept + (stays ? p.state : 0);
    const bool dropped = c.state[b] == StateChoice::kDropped;
    again[b] = dropped ? p.options[c.option[b]].held + p.state : 0;
  }
  int64_t peak = p.outside_none, all = p.outside_all;
  for (int b = 0; b < p.blocks; ++b) {
    int64_t before = 0, segment = 0;
    for (int a = 0; a < b; ++a) before += kept[a];
    for (int a = b - 1; a >= 0 && c.state[a] == StateChoice::kDropped; --a) segment += again[a];
    const BlockOption& o = p.options[c.option[b]];
    peak = std::max({peak, before + o.forward[b], before + segment + o.backward[b]});
    all += kept[b];
  }
  return std::max(peak, all);
}

// Over every choice.
struct Judged {
  double cost = std::numeric_limits<double>::infinity();
  int64_t least_peak = std::numeric_limits<int64_t>::max();
};
std::vector<ChainChoice> all_choices(const ChainProblem& p) {
  std::vector<ChainChoice> all = {{}};
  for (int b = 0; b < p.blocks; ++b) {
    std::vector<ChainChoice> longer;
    for (const ChainChoice& begun : all) {
      for (int o = 0; o < static_cast<int>(p.options.size()); ++o) {
        for (const auto s : {StateChoice::kKept, StateChoice::kDropped, StateChoice::kAway}) {
          if (s != StateChoice::kKept && b + 1 == p.blocks) continue;
          if (s == StateChoice::kAway && p.state_cost < 0) continue;
          ChainChoice c = begun;
          c.option.push_back(o), c.state.push_back(s);
          c.cost += seconds_of(p, o, s);
          longer.push_back(std::move(c));
        }
      }
    }
    all = std::move(longer);
  }
  for (ChainChoice& c : all) c.peak = peak_by_hand(p, c);
  return all;
}
Judged judged(const std::vector<ChainChoice>& all, int64_t budget) {
  Judged best;
  for (const ChainChoice& c : all) {
    best.least_peak = std::min(best.least_peak, c.peak);
    if (c.peak <= budget) best.cost = std::min(best.cost, c.cost);
  }
  return best;
}

void expect_legal(const ChainProblem& p, const ChainChoice& c, int64_t budget) {
  ASSERT_EQ(static_cast<int>(c.option.size()), p.blocks);
  EXPECT_EQ(c.peak, peak_by_hand(p, c));
  EXPECT_EQ(peak_of(p, c), c.peak);
  EXPECT_LE(c.peak, budget);
  double cost = 0;
  for (int b = 0; b < p.blocks; ++b) cost += seconds_of(p, c.option[b], c.state[b]);
  EXPECT_DOUBLE_EQ(cost, c.cost);
  EXPECT_EQ(c.state.back(), StateChoice::kKept);
}

TEST(Chain, IsTheBestOfAllChoices) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 150; ++trial) {
    const int blocks = 1 + trial % 4;
    const ChainProblem p = random_problem(random, blocks, 2 + below(random, blocks == 4 ? 3 : 5));
    SCOPED_TRACE("trial " + std::to_string(trial));
    const std::vector<ChainChoice> all = all_choices(p);
    EXPECT_EQ(smallest_budget(p), std::max<int64_t>(judged(all, 0).least_peak, 1));
    for (const int64_t budget : budgets_of(p, random)) {
      const auto found = solve(p, budget);
      const Judged best = judged(all, budget);
      ASSERT_EQ(found.has_value(), best.least_peak <= budget) << "budget " << budget;
      if (!found) continue;
      EXPECT_EQ(found->cost, best.cost) << "budget " << budget;
      expect_legal(p, *found, budget);
    }
  }
}

TEST(Chain, CostsWhatALinearProgramSays) {
  SKIP_WITHOUT_MILP();
  std::mt19937 random(7);
  for (int trial = 0; trial < 36; ++trial) {
    const int blocks = 1 + trial % 12;
    const ChainProblem p = random_problem(random, blocks, 2 + below(random, blocks > 8 ? 3 : 5));
    const auto cost = [&](int, int o, StateChoice s) { return seconds_of(p, o, s); };
    for (const int64_t budget : budgets_of(p, random)) {
      SCOPED_TRACE("trial " + std::to_string(trial) + ", budget " + std::to_string(budget));
      const auto found = solve(p, budget);
      const auto wanted = milp_choice(p, budget, cost);
      ASSERT_EQ(found.has_value(), wanted.has_value());
      if (!found) continue;
      EXPECT_LE(peak_by_hand(p, *wanted), budget);  // the program says the same problem
      EXPECT_NEAR(found->cost, wanted->cost, 1e-9 * wanted->cost);
      expect_legal(p, *found, budget);
    }
  }
}

TEST(Chain, SmallestBudgetIsTheSmallest) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 100; ++trial) {
    const ChainProblem p = random_problem(random, 1 + trial % 12, 2 + below(random, 5));
    const int64_t least = smallest_budget(p);
    EXPECT_TRUE(solve(p, least));
    EXPECT_FALSE(solve(p, least - 1)) << "trial " << trial;
  }
}

// Worked out by hand: three blocks that keep 10 for nothing or 0 for 3 seconds, states of 2.
TEST(Chain, TakesWhatThreeBlocksNeed) {
  ChainProblem p{.blocks = 3, .state = 2, .outside_all = 1, .outside_none = 4};
  p.options = {{.kept = 10,
                .held = 0,
                .cost = 0,
                .through = 9,
                .forward = {11, 11, 11},
                .backward = {12, 12, 12}},
               {.kept = 0,
                .held = 10,
                .cost = 3,
                .through = 4,
                .forward = {11, 11, 11},
                .backward = {13, 13, 13}}};
  // All kept: the last backward stands on two blocks and two states, 24, and works with 12.
  EXPECT_EQ(solve(p, 36)->cost, 0);
  // One of the first two blocks gives back its 10.
  EXPECT_EQ(solve(p, 35)->cost, 3);
  EXPECT_EQ(solve(p, 26)->cost, 3);
  // The first one its state, too: the second holds 12 of it beside its own 12.
  EXPECT_EQ(solve(p, 25)->cost, 4);
  EXPECT_EQ(solve(p, 24)->cost, 4);
  // Both their 10: 4 of states and 12 of work.
  EXPECT_EQ(solve(p, 23)->cost, 6);
  EXPECT_EQ(solve(p, 16)->cost, 6);
  EXPECT_EQ(smallest_budget(p), 16);
  EXPECT_FALSE(solve(p, 15));
}

}  // namespace
}  // namespace adjoint
