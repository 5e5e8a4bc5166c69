// Sums that pass through several calls in one iteration stay in the accumulator's own bytes.
#include "analysis/accumulators.h"

#include <gtest/gtest.h>

#include <set>

#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/test_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

// sum = sum + x1 y1 + x2 y2, in two products.
constexpr const char* kTwoProducts = R"(scheme parts=2:
  input %0 x: f32[b=4, n=64]
  input %1 y: f32[b=4, k=64]
  %2 part:index: i32[] control = fill() {dtype="i32", shape=[], value=0.0} @part:index prologue
  %3 sum:begin: f32[n=64, k=64] = fill() {dtype="f32", shape=[64, 64], value=0.0} @begin prologue
  %4 x:part: f32[b=2, n=64] = part(%0, %2) {fill=0, size=2} @x:part
  %5 y:part: f32[b=2, k=64] = part(%1, %2) {fill=0, size=2} @y:part
  %6 half: f32[n=64, k=64] = contract(%4, %5, %3) {map="bn,bk->nk"} @half
  %7 sum: f32[n=64, k=64] = contract(%4, %5, %6) {map="bn,bk->nk"} @sum
  %8 part:index: i32[] control = map(%2) {body="add(x0, 1)/i32"} @part:index
  loop %2 -> %8
  loop %3 -> %7
  return %7
)";

TEST(Accumulators, EachIsMadeInPlaceOfTheOneBefore) {
  const Scheme scheme = parse_scheme(kTwoProducts);
  verify(scheme);
  const std::vector<Value> from = grown_from(scheme);
  EXPECT_EQ(from[6], 3);
  EXPECT_EQ(from[7], 6);
  const Plan plan = make_plan(scheme, {});
  EXPECT_EQ(plan.offset_of(6), plan.offset_of(3));
  EXPECT_EQ(plan.offset_of(7), plan.offset_of(3));
}

TEST(Accumulators, TheSumIsRight) {
  const Scheme scheme = parse_scheme(kTwoProducts);
  Numbers x(4 * 64), y(4 * 64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i % 7) - 3, y[i] = static_cast<double>(i % 5) - 2;
  }
  const Numbers sum = run_scheme(scheme, {x, y}, false)[0];
  for (int n = 0; n < 64; ++n) {
    for (int k = 0; k < 64; ++k) {
      double wanted = 0;
      for (int b = 0; b < 4; ++b) wanted += 2 * x[b * 64 + n] * y[b * 64 + k];
      ASSERT_EQ(sum[n * 64 + k], wanted) << n << " " << k;
    }
  }
}

// Another reader of a partial sum would read a later value.
TEST(Accumulators, WhatOthersReadStaysApart) {
  std::string text = kTwoProducts;
  text.replace(text.find("  loop %2"), 0,
               "  %9 seen: f32[] = square_sum(%6) @seen\n"
               "  %10 kept: f32[] = fill() {dtype=\"f32\", shape=[], value=0.0} @kept prologue\n");
  const Scheme scheme = parse_scheme(text);
  EXPECT_EQ(grown_from(scheme)[7], -1);
}

// A tied table is readout and embedding. With several parts its gradient is accumulated in place by
// all chunks and by the embedding, so there is one table of sums and no other.
TEST(Accumulators, ATiedTableInChunksHasOneTableOfSums) {
  const Scheme step =
      training_step(test_model("qwen", {{"batch", 8}, {"vocab", 4000}, {"dropout", 0}}),
                    {.stack = "accumulate(2) | chunk_readout(rows=16)"});
  const Value table = step.find({"wte.weight"}).value();
  const Plan plan = make_plan(step, {});
  std::set<int64_t> places;
  int gradients = 0;
  for (size_t v = 0; v < step.objects.size(); ++v) {
    if (step.objects[v].role != Role::kGradient) continue;
    if (!same_shape(step.objects[v].type, step[table].type)) continue;
    places.insert(plan.offset_of(static_cast<Value>(v)).count);
    ++gradients;
  }
  EXPECT_GE(gradients, 4) << "the beginning, two chunks or more, and the embedding's";
  EXPECT_EQ(places.size(), 1u);
}

}  // namespace
}  // namespace adjoint
