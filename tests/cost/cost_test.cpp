// Seconds of calls: worked out by hand from a sheet of round numbers.
#include "cost/cost.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace adjoint {
namespace {

Costs round_costs() {
  DeviceSheet sheet;
  sheet.products = {{"f32", 1e9}, {"bf16", 4e9}};
  sheet.arithmetic = 1e8;
  sheet.bandwidth = sheet.most_bandwidth = 1e9;
  return {.sheet = sheet};
}

Scheme product(const std::string& dtype, int64_t rows) {
  const std::string n = std::to_string(rows);
  return parse_scheme("scheme:\n  input %0 x: " + dtype + "[n=" + n +
                      ", i=100]\n  input %1 w: " + dtype + "[o=100, i=100]\n  %2 y: " + dtype +
                      "[n=" + n + ", o=100] = linear(%0, %1) @y\n  return %2\n");
}

TEST(Costs, AProductTakesItsOperationsOrItsBytesWhicheverIsLonger) {
  const Scheme many = product("f32", 1000);  // 2e7 FLOPs, 840 kB
  EXPECT_DOUBLE_EQ(round_costs().seconds(many, many.morphisms[0]), 2e7 / 1e9);
  const Scheme few = product("f32", 1);  // 2e4 FLOPs, 100 + 10,000 + 100 elements
  EXPECT_DOUBLE_EQ(round_costs().seconds(few, few.morphisms[0]), 4 * 10200 / 1e9);
}

TEST(Costs, TheRateIsThatOfTheDtype) {
  const Scheme narrow = product("bf16", 10000);  // 2e8 FLOPs, 4.02 MB
  EXPECT_DOUBLE_EQ(round_costs().seconds(narrow, narrow.morphisms[0]), 2e8 / 4e9);
}

TEST(Costs, AProductTakesWhatItTookInItsContest) {
  const Scheme wide = product("bf16", 4096), other = product("bf16", 2048);
  const OpCall call = call_of(wide, wide.morphisms[0]);
  const auto dense = [&](Value v) { return dense_strides(wide[v].type); };
  const auto keys =
      backend_of(Target::kCuda)
          .find("linear")
          ->products(kernel_call(call, wide, wide.morphisms[0], {.target = Target::kCuda}, dense));
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_NE(keys[0].find("m=4096 n=100 k=100"), std::string::npos) << keys[0];
  TunedProducts table;
  table.remember("this GPU", keys[0], {.algorithm = {}, .microseconds = 7});
  Costs costs = round_costs();
  costs.sheet.launch = 1e-6;
  const double by_sheet = costs.seconds(other, other.morphisms[0]);
  costs.learn(table, "another GPU");
  EXPECT_TRUE(costs.tuned.empty());
  costs.learn(table, "this GPU");
  EXPECT_DOUBLE_EQ(costs.seconds(wide, wide.morphisms[0]), 8e-6);
  EXPECT_DOUBLE_EQ(costs.seconds(other, other.morphisms[0]), by_sheet);
}

// Gelu as an epilogue is not for a step that must give the same bits every time.
TEST(Costs, ADeterministicStepHasNoContestOfAnEpilogue) {
  const std::string gelu = print(body_of({.op = "gelu", .inputs = {{Dtype::kBF16, {}}}}));
  Scheme s = product("bf16", 4096);
  Morphism& m = s.morphisms[0];
  m.op = "linear_act";
  m.attrs = {{"body", gelu}, {"keep", int64_t{1}}};
  m.outputs.push_back(s.add(s[m.outputs[0]]));
  for (Object& o : s.objects) o.type.axes.back().size = 128;  // as epilogues want it
  s[1].type.axes[0].size = 128;
  const OpCall call = call_of(s, m);
  const auto dense = [&](Value v) { return dense_strides(s[v].type); };
  const auto keys = backend_of(Target::kCuda)
                        .find(m.op)
                        ->products(kernel_call(call, s, m, {.target = Target::kCuda}, dense));
  ASSERT_EQ(keys.size(), 1u);
  Costs costs = round_costs();
  costs.tuned[keys[0]] = 7e-6;
  EXPECT_TRUE(costs.by_contest(s, m));
  costs.deterministic = true;
  EXPECT_FALSE(costs.by_contest(s, m));
}

TEST(Costs, CoresShareTheWorkAndTheBandwidthOfAllIsAnEnd) {
  Costs costs = round_costs();
  costs.sheet.per_core = true;
  costs.sheet.most_bandwidth = 2e9;
  costs.threads = 4;
  const Scheme many = product("f32", 1000);
  EXPECT_DOUBLE_EQ(costs.seconds(many, many.morphisms[0]), 2e7 / 4e9);
  const Scheme few = product("f32", 1);
  EXPECT_DOUBLE_EQ(costs.seconds(few, few.morphisms[0]), 4 * 10200 / 2e9);
}

TEST(Costs, WhatWasMeasuredTakesWhatItTookAndItsKindAsMuchMore) {
  Costs costs = round_costs();
  const Scheme seen = product("f32", 1000);
  costs.learn(seen, {{call_key(seen, seen.morphisms[0]), 0.06}});  // three times the sheet's
  EXPECT_DOUBLE_EQ(costs.seconds(seen, seen.morphisms[0]), 0.06);
  const Scheme other = product("f32", 2000);
  EXPECT_DOUBLE_EQ(costs.seconds(other, other.morphisms[0]), 3 * 4e7 / 1e9);
}

TEST(Costs, AKeyIsOfTheCallAndNotOfItsPlace) {
  Scheme a = product("f32", 10), b = product("f32", 10);
  b.morphisms[0].source = {"elsewhere"};
  EXPECT_EQ(call_key(a, a.morphisms[0]), call_key(b, b.morphisms[0]));
  const Scheme c = product("f32", 11);
  EXPECT_NE(call_key(a, a.morphisms[0]), call_key(c, c.morphisms[0]));
}

}  // namespace
}  // namespace adjoint
