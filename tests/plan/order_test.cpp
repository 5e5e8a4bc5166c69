// The order of a step: makers before readers, readers of state before its writer, and gradients
// that die as they are born.
#include "plan/order.h"

#include <gtest/gtest.h>

#include <functional>

#include "functors/pipeline.h"
#include "ops/op_def.h"
#include "plan/plan.h"
#include "plan/random_scheme.h"

namespace adjoint {
namespace {

using Order = std::vector<int>;

std::vector<int> places(const Order& order) {
  std::vector<int> at(order.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) at[order[i]] = static_cast<int>(i);
  return at;
}

void expect_legal(const Scheme& s, const Order& order) {
  ASSERT_EQ(order.size(), s.morphisms.size());
  const std::vector<int> at = places(order), made_by = producers(s);
  for (const int place : at) ASSERT_GE(place, 0) << "every morphism runs";
  for (size_t i = 0; i < s.morphisms.size(); ++i) {
    for (const Value in : s.morphisms[i].inputs) {
      if (made_by[in] < 0) continue;
      EXPECT_LT(at[made_by[in]], at[i]) << s.morphisms[i].op;
    }
  }
  for (size_t i = 1; i < order.size(); ++i) {
    EXPECT_LE(s.morphisms[order[i - 1]].section, s.morphisms[order[i]].section) << "contiguous";
  }
  std::vector<Carry> carries = s.carries;
  carries.insert(carries.end(), s.loop.begin(), s.loop.end());
  for (const Carry& c : carries) {
    // Readers of the old state, also through views, come before the writer of the new state.
    const int writer = made_by[c.out];
    std::vector<Value> old = {c.in};
    for (size_t k = 0; k < old.size(); ++k) {
      for (size_t i = 0; i < s.morphisms.size(); ++i) {
        const Morphism& m = s.morphisms[i];
        if (std::count(m.inputs.begin(), m.inputs.end(), old[k]) == 0) continue;
        if (static_cast<int>(i) != writer) {
          EXPECT_LT(at[i], at[writer]) << m.op << " reads " << to_string(s[c.in].source);
        }
        // A view of an accumulator that is made before the body is a copy.
        if (op_named(m.op).view && m.section != Section::kPrologue) old.push_back(m.outputs[0]);
      }
    }
  }
}

TEST(Order, RandomSchemesRunInALegalOrder) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    const Scheme s = RandomScheme(seed, seed >= 300).scheme;
    SCOPED_TRACE(print(s));
    expect_legal(s, written_order(s));
    expect_legal(s, freeing_order(s));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Order, WrittenStaysAsWrittenWhereItCan) {
  const Scheme s = parse_scheme(R"(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] = gelu(%0) @a
  %2 b: f32[n=4] = gelu(%0) @b
  %3 c: f32[n=4] = add(%2, %1) @c
  %4 d: f32[n=4] = gelu(%1) @d
  return %3, %4
)");
  EXPECT_EQ(written_order(s), (Order{0, 1, 2, 3}));
}

// %4 reads only %0, and would free nothing by coming later; it waits all the same.
TEST(Order, WaitsForWhatItDoesNotRead) {
  const Scheme s = parse_scheme(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = exp(%1) @b
  %3 sb: f32[] = square_sum(%2) @sb
  %4 c: f32[] = square_sum(%0) @c backward epoch=1 after %2, %0
  return %3, %4
)");
  for (const Order& order : {written_order(s), freeing_order(s)}) {
    EXPECT_GT(places(order)[3], places(order)[1]);
  }
  // A morphism does not wait for objects that no morphism makes.
  Scheme dead = s;
  dead.outputs = {4};
  EXPECT_EQ(print(without_dead(dead)), R"(scheme:
  input %0 x: f32[n=400]
  %1 c: f32[] = square_sum(%0) @c backward epoch=1 after %0
  return %1
)");
}

TEST(Order, StateIsOverwrittenAfterItsReaders) {
  // The update is written first and must come last.
  const Scheme s = parse_scheme(R"(scheme:
  input %0 x: f32[n=4]
  state %1 m: f32[n=4]
  %2 next: f32[n=4] state = add(%1, %0) @update update
  %3 a: f32[n=4] = mul(%0, %1) @a
  %4 b: f32[n=4] = gelu(%1) @b
  carry %1 -> %2
  return %3, %4
)");
  EXPECT_EQ(written_order(s), (Order{1, 2, 0}));
  EXPECT_EQ(freeing_order(s).back(), 0);
}

// A view is the state itself, seen otherwise: its readers are the state's.
TEST(Order, StateIsOverwrittenAfterTheReadersOfItsViews) {
  const Scheme s = parse_scheme(R"(scheme:
  input %0 x: f32[b=2, n=4]
  state %1 m: f32[b=2, n=4]
  %2 part: f32[b=2, n=2] = slice(%1) {size=2, start=1} @part
  %3 split: f32[b=2, parts=2, n=1] = split(%2) {parts=2} @split
  %4 next: f32[b=2, n=4] state = add(%1, %0) @update update
  %5 y: f32[b=2, parts=2, n=1] = gelu(%3) @y
  carry %1 -> %4
  return %5
)");
  for (const Order& order : {written_order(s), freeing_order(s)}) {
    EXPECT_LT(places(order)[3], places(order)[2]);
    expect_legal(s, order);
  }
}

TEST(Order, WhatFreesComesEarly) {
  // Each sum frees two large objects; as written, all four are alive at once.
  const Scheme s = parse_scheme(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = exp(%0) @b
  %3 c: f32[n=400] = tanh(%0) @c
  %4 sa: f32[] = square_sum(%1) @sa
  %5 sb: f32[] = square_sum(%2) @sb
  %6 sc: f32[] = square_sum(%3) @sc
  return %4, %5, %6
)");
  EXPECT_EQ(written_order(s), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(freeing_order(s), (Order{0, 3, 1, 4, 2, 5}));
}

// A stack of linear maps to a cross entropy, as a training step.
Scheme stack_of_linears(int layers, const StepOptions& options) {
  constexpr int64_t kWidth = 16;
  Scheme s;
  s.name = "stack";
  Builder b(s);
  const Axis batch{"batch", 4}, width{"width", kWidth};
  Value x =
      s.add_input({.type = {Dtype::kF32, {batch, width}}, .source = {"x"}, .role = Role::kInput});
  const Value targets =
      s.add_input({.type = {Dtype::kI32, {batch}}, .source = {"targets"}, .role = Role::kInput});
  for (int l = 0; l < layers; ++l) {
    const std::string path = "layer[" + std::to_string(l) + "]";
    const Value w = s.add_input({.type = {Dtype::kF32, {width, width}},
                                 .source = {path + ".weight"},
                                 .role = Role::kParameter});
    b.at({path}, Phase::kForward, Role::kActivation);
    x = b.emit("gelu", {b.emit("linear", {x, w})});
  }
  b.at({"loss"}, Phase::kForward, Role::kMetric);
  const auto loss = b.emit_all("cross_entropy", {x, targets});
  s.outputs = {loss[0], loss[1]};
  return training_step(s, options);
}

TEST(Order, WithoutClippingAGradientDiesInItsUpdate) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    SCOPED_TRACE(optimizer);
    const int layers = 12;
    const Scheme s = stack_of_linears(layers, {.optimizer = optimizer, .clip = 0});
    expect_legal(s, freeing_order(s));
    const std::vector<int> at = places(freeing_order(s)), made_by = producers(s);
    int64_t sum = 0;
    std::vector<std::pair<int, int>> lives;  // of the weights' gradients
    for (size_t i = 0; i < s.morphisms.size(); ++i) {
      if (s.morphisms[i].op != optimizer) continue;
      const Value gradient = s.morphisms[i].inputs[1];
      sum += s[gradient].type.bytes().count;
      lives.emplace_back(at[made_by[gradient]], at[i]);
    }
    ASSERT_EQ(lives.size(), static_cast<size_t>(layers));
    std::sort(lives.begin(), lives.end());
    for (size_t l = 1; l < lives.size(); ++l) {
      EXPECT_LT(lives[l - 1].second, lives[l].first) << "updated before the next one is made";
    }
    const Plan plan = make_plan(s, {});
    const Bytes at_peak = plan.at_peak()[static_cast<size_t>(Category::kGradients)];
    EXPECT_LT(at_peak.count, sum / 3);
    int64_t most = 0;  // at any time
    for (size_t t = 0; t < plan.calls.size(); ++t) {
      int64_t live = 0;
      for (const Alive& a : plan.alive_at(static_cast<int>(t))) {
        if (a.tenant.category == Category::kGradients) live += a.tenant.size.count;
      }
      most = std::max(most, live);
    }
    EXPECT_LT(most, sum / 3);
  }
}

// Clipping needs all gradients before the first update.
TEST(Order, WithClippingUpdatesComeAfterAllGradients) {
  const Scheme s = stack_of_linears(6, {.optimizer = "sgd", .clip = 1});
  const Order order = freeing_order(s);
  expect_legal(s, order);
  const std::vector<int> at = places(order), made_by = producers(s);
  int last_gradient = 0, first_update = static_cast<int>(order.size());
  for (size_t i = 0; i < s.morphisms.size(); ++i) {
    if (s.morphisms[i].op != "sgd") continue;
    last_gradient = std::max(last_gradient, at[made_by[s.morphisms[i].inputs[1]]]);
    first_update = std::min(first_update, at[i]);
  }
  EXPECT_LT(last_gradient, first_update);
}

TEST(Order, IsDeterministic) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Scheme s = RandomScheme(seed).scheme;
    EXPECT_EQ(freeing_order(s), freeing_order(s));
    EXPECT_EQ(written_order(s), written_order(s));
  }
}

}  // namespace
}  // namespace adjoint
