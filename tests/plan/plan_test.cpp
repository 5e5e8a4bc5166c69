// Plans of random schemes, held to a judge that follows every byte and to a plan that shares
// nothing; then each kind of sharing by hand.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "functors/pipeline.h"
#include "kernels/backend.h"
#include "kernels/harness.h"
#include "plan/byte_oracle.h"
#include "plan/random_scheme.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

// ---- the plan that shares nothing ----

Plan naive_plan(const Scheme& s) {
  Plan plan;
  plan.threads = num_threads();
  const int end = static_cast<int>(s.morphisms.size());
  const auto new_storage = [&](Bytes size, Tier tier) {
    Arena arena = plan.arena_of(tier);
    plan.storages.push_back(
        {.size = size, .offset = arena.size, .first = 0, .last = end, .tier = tier});
    arena.size += round_up(size, {64});
    plan.set_arena(tier, arena);
    return static_cast<int>(plan.storages.size() - 1);
  };
  for (const Object& object : s.objects) {
    plan.places.push_back({.storage = new_storage(object.type.bytes(), object.attributes.tier),
                           .strides = dense_strides(object.type)});
  }
  for (const Morphism& m : s.morphisms) {
    plan.body_begin += m.section < Section::kBody;
    plan.body_end += m.section <= Section::kBody;
  }
  for (int i = 0; i < end; ++i) {
    const Morphism& m = s.morphisms[i];
    const OpCall call = call_of(s, m);
    const Bytes workspace = workspace_bytes(kernel_call(call, s, m, plan));
    plan.calls.push_back(
        {.morphism = i,
         .workspace = workspace.count > 0 ? new_storage(workspace, Tier::kDevice) : -1});
  }
  return plan;
}

// Runs two steps, so that carried state is read. Returns the results of both, then the state.
std::vector<Numbers> two_steps(const Scheme& s, Plan plan, bool in_place) {
  Run run(s, std::move(plan), {.poison = true});
  run.fill_arena(std::byte{0xff});
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Numbers> results;
  if (!in_place) {
    run.after_call = [&](int at) {
      if (at != run.plan().body_end - 1) return;
      for (const Carry& c : s.loop) run.set_values(c.in, run.values(c.out));
    };
  }
  for (const int step : {0, 1}) {
    for (const Value in : s.inputs) {
      const bool data = s[in].role == Role::kInput;
      if (step > 0 && !data) continue;
      Numbers x(s[in].type.num_elements());
      for (double& value : x) {
        value = s[in].type.dtype == Dtype::kI64 ? 5.0 : static_cast<double>(normal(random));
      }
      run.set_values(in, x);
    }
    run.step();
    for (const Value out : s.outputs) results.push_back(run.values(out));
    for (const Carry& c : s.carries) {
      results.push_back(run.values(c.out));
      if (!in_place) run.set_values(c.in, run.values(c.out));
    }
  }
  return results;
}

TEST(Plan, RandomSchemesGiveTheBitsOfAPlanThatSharesNothing) {
  int shared = 0, views = 0, copies = 0, carries = 0, accumulators = 0, on_host = 0;
  for (unsigned seed = 0; seed < 800; ++seed) {
    const Scheme s = RandomScheme(seed, seed >= 400).scheme;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + print(s));
    const Plan plan = make_plan(s, {.threads = num_threads()});
    ASSERT_EQ(ByteOracle(s, plan).first_fault(), "");
    const auto got = two_steps(s, plan, true), want = two_steps(s, naive_plan(s), false);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      for (size_t i = 0; i < want[k].size(); ++i) {
        ASSERT_EQ(got[k][i], want[k][i]) << "result " << k << ", element " << i;
      }
    }
    if (testing::Test::HasFailure()) return;
    for (const PlannedCall& call : plan.calls) {
      const OpDef& op = op_named(s.morphisms[call.morphism].op);
      if (op.view) ++(call.is_view ? views : copies);
    }
    for (const Storage& storage : plan.storages) {
      shared += storage.objects.size() > 1;
      on_host += storage.tier == Tier::kHost;
    }
    carries += static_cast<int>(s.carries.size());
    accumulators += static_cast<int>(s.loop.size());
  }
  // The schemes have what they are meant to have.
  EXPECT_GT(shared, 400);
  EXPECT_GT(views, 200);
  EXPECT_GT(copies, 20);
  EXPECT_GT(carries, 200);
  EXPECT_GT(accumulators, 400);
  EXPECT_GT(on_host, 200);
}

TEST(Plan, RandomSchemesArePackedWithinTheirBounds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Scheme s = RandomScheme(seed, seed >= 100).scheme;
    const Plan plan = make_plan(s, {});
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const Arena arena = plan.arena_of(tier);
      Bytes sum;
      for (const Storage& storage : plan.storages) {
        if (storage.tier == tier) sum += round_up(storage.size, {64});
      }
      EXPECT_LE(arena.size, sum);
      EXPECT_GT(arena.size.count, arena.live_peak.count - 64) << "no arena can be smaller";
      Bytes at_peak;
      for (const Bytes bytes : plan.at_peak(tier)) at_peak += bytes;
      EXPECT_EQ(at_peak, arena.live_peak) << "categories add up";
      for (int at = 0; at <= static_cast<int>(plan.calls.size()); ++at) {
        Bytes live, owned;
        for (const Storage& storage : plan.storages) {
          const bool alive = storage.first <= at && at <= storage.last;
          if (storage.tier == tier && alive) live += storage.size;
        }
        for (const Alive& a : plan.alive_at(at, tier)) owned += a.tenant.size;
        EXPECT_EQ(owned, live) << "every byte has one owner at place " << at;
      }
    }
    for (const Value in : s.inputs) {
      const bool state = s[in].role != Role::kInput;
      EXPECT_EQ(plan.offset_of(in) < plan.arena_of(plan.tier_of(in)).state_end, state)
          << "state lies at the bottom, alone";
    }
  }
}

// ---- sharing, by hand ----

Scheme parsed(const char* text) {
  Scheme s = parse_scheme(text);
  verify(s);
  return s;
}
int storage_of(const Plan& plan, Value v) { return plan.places[v].storage; }

TEST(PlanInPlace, AChainOfElementwiseOpsUsesOneBuffer) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = gelu(%1) @b
  %3 c: f32[n=400] = gelu(%2) @c
  %4 d: f32[n=400] = gelu(%3) @d
  return %4
)");
  const Plan plan = make_plan(s, {});
  for (const Value v : {2, 3, 4}) EXPECT_EQ(storage_of(plan, v), storage_of(plan, 1));
  EXPECT_NE(storage_of(plan, 1), storage_of(plan, 0)) << "an input stays the caller's";
}

// ---- who owns the bytes ----

// What takes another's place is what these bytes are from then on.
TEST(PlanOwners, AResultInPlaceOfAnOperandIsItsOwnCategory) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 da: f32[n=400] gradient = scale(%1) {by=2.0} @a:grad backward
  return %2
)");
  const Plan plan = make_plan(s, {});
  const int storage = storage_of(plan, 2);
  ASSERT_EQ(storage_of(plan, 1), storage);
  EXPECT_EQ(plan.owner_at(storage, 0), 1);
  EXPECT_EQ(plan.owner_at(storage, 1), 2);
  EXPECT_EQ(plan.owner_at(storage, 2), 2) << "after the step, too";
  const auto bytes = [&](int place, Category category) {
    int64_t sum = 0;
    for (const Alive& a : plan.alive_at(place)) {
      if (a.tenant.category == category) sum += a.tenant.size.count;
    }
    return sum;
  };
  EXPECT_EQ(bytes(0, Category::kActivations), 1600);
  EXPECT_EQ(bytes(0, Category::kGradients), 0);
  EXPECT_EQ(bytes(1, Category::kActivations), 0);
  EXPECT_EQ(bytes(1, Category::kGradients), 1600);
  EXPECT_EQ(bytes(0, Category::kOther), 1600) << "data";
}

// The first call writes it: before that there is no moment in which it is the old one's.
TEST(PlanOwners, StateChangesHandsInPlace) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=4]
  state %1 m: f32[n=4]
  %2 next: f32[n=4] state = add(%1, %0) @update update
  %3 y: f32[n=4] = gelu(%0) @y
  carry %1 -> %2
  return %3
)");
  const Plan plan = make_plan(s, {});
  const int at = plan.calls[0].morphism == 0 ? 0 : 1;
  EXPECT_EQ(plan.owner_at(storage_of(plan, 1), at), 2);
  EXPECT_EQ(plan.owner_at(storage_of(plan, 1), at - 1), at > 0 ? 1 : -1);
  EXPECT_EQ(plan.owner_at(storage_of(plan, 1), 2), 2);
}

// Parameters that lie one behind the other are owners side by side; a workspace is its call's.
TEST(PlanOwners, JoinedParametersAndWorkspaces) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=64, n=64]
  parameter %1 p: f32[m=64, n=64]
  parameter %2 q: f32[m=64, n=64]
  %3 pq: f32[m=128, n=64] = concat(%1, %2) @pq
  %4 y: f32[b=64, m=128] = linear(%0, %3) @y
  %5 s: f32[m=128] = map(%4) {body="x0/1"} @s
  return %4, %5
)");
  const Plan plan = make_plan(s, {});
  const int storage = storage_of(plan, 1);
  ASSERT_EQ(storage_of(plan, 3), storage) << "the concat is a view";
  EXPECT_EQ(plan.owner_at(storage, 1, {0}), 1);
  EXPECT_EQ(plan.owner_at(storage, 1, {64 * 64 * 4 - 1}), 1);
  EXPECT_EQ(plan.owner_at(storage, 1, {64 * 64 * 4}), 2);
  const int workspace = plan.calls[2].workspace;
  ASSERT_GE(workspace, 0) << "sums over rows are made in blocks";
  EXPECT_EQ(plan.owner_at(workspace, 2), -1);
  const Tenant& tenant = plan.storages[workspace].tenants[0];
  EXPECT_EQ(tenant.category, Category::kWorkspace);
  EXPECT_EQ(tenant.from, 2);
  EXPECT_EQ(tenant.to, 2);
}

// Not even by its last reader.
TEST(PlanInPlace, NeverOverAnInput) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=400]
  parameter %1 p: f32[n=400]
  %2 a: f32[n=400] = add(%0, %1) @a
  %3 b: f32[n=400] = exp(%1) @b
  %4 c: f32[n=400] = tanh(%0) @c
  return %2, %3, %4
)");
  const Plan plan = make_plan(s, {});
  for (const Value made : {2, 3, 4}) {
    for (const Value input : {0, 1}) EXPECT_NE(storage_of(plan, made), storage_of(plan, input));
  }
}

TEST(PlanInPlace, NotOverAnOperandThatIsReadLaterOrReturned) {
  const Scheme later = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = gelu(%1) @b
  %3 c: f32[n=400] = add(%2, %1) @c
  return %3
)");
  const Plan plan = make_plan(later, {});
  EXPECT_NE(storage_of(plan, 2), storage_of(plan, 1));
  EXPECT_EQ(storage_of(plan, 3), storage_of(plan, 2)) << "the first operand that dies";
  const Scheme returned = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = gelu(%1) @b
  return %2, %1
)");
  const Plan other = make_plan(returned, {});
  EXPECT_NE(storage_of(other, 2), storage_of(other, 1));
}

TEST(PlanInPlace, NotOverAnotherTypeOrAViewOfAPart) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=3, n=400]
  %1 a: f32[b=3, n=400] = gelu(%0) @a
  %2 part: f32[b=3, n=200] = slice(%1) {size=200, start=0} @part
  %3 b: f32[b=3, n=200] = gelu(%2) @b
  %4 c: bf16[b=3, n=200] = cast(%3) {dtype="bf16"} @c
  return %4
)");
  const Plan plan = make_plan(s, {});
  EXPECT_NE(storage_of(plan, 3), storage_of(plan, 1)) << "strided";
  EXPECT_NE(storage_of(plan, 4), storage_of(plan, 3)) << "another dtype";
}

TEST(PlanInPlace, AMatrixProductIsNever) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=4, n=16]
  parameter %1 w: f32[n=16, n=16]
  %2 a: f32[b=4, n=16] = gelu(%0) @a
  %3 y: f32[b=4, n=16] = linear(%2, %1) @y
  return %3
)");
  const Plan plan = make_plan(s, {});
  EXPECT_NE(storage_of(plan, 3), storage_of(plan, 2));
}

// One operand, two results of its type: only one takes its place.
TEST(PlanInPlace, OneResultOnlyTakesAPlace) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400], %3 b.1: f32[n=400] = map(%1) {body="exp(x0), x0"} @b
  return %2, %3
)");
  const Plan plan = make_plan(s, {});
  EXPECT_EQ(storage_of(plan, 2), storage_of(plan, 1));
  EXPECT_NE(storage_of(plan, 3), storage_of(plan, 1));
}

// The gradient of a norm: dx takes the place of dy, and the bias's gradient, a sum of dy, must not
// be a sum of dx.
TEST(PlanInPlace, AResultMayNotSpoilASumOfItsOperand) {
  const Scheme s = parsed(R"(scheme:
  input %0 dy: f32[b=3, n=4]
  %1 a: f32[b=3, n=4] = scale(%0) {by=2.0} @a
  %2 dx: f32[b=3, n=4], %3 db: f32[n=4] = map(%1) {body="mul(x0, 100), x0/1"} @b
  return %2, %3
)");
  const Plan plan = make_plan(s, {});
  EXPECT_EQ(storage_of(plan, 2), storage_of(plan, 1));
  const auto got = run_scheme(s, {{1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400}}, false);
  EXPECT_EQ(got[1], (Numbers{222, 444, 666, 888}));
}

TEST(PlanViews, ShareTheStorageOfWhatTheySee) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=2, n=12]
  %1 a: f32[b=2, n=12] = gelu(%0) @a
  %2 halves: f32[b=2, parts=2, n=6] = split(%1) {parts=2} @halves
  %3 part: f32[b=2, parts=2, n=3] = slice(%2) {size=3, start=2} @part
  %4 y: f32[b=2, parts=2, n=3] = exp(%3) @y
  %5 back: f32[b=2, n=12] = merge(%2) @back
  return %4, %5
)");
  const Plan plan = make_plan(s, {});
  for (const Value v : {2, 3, 5}) EXPECT_EQ(storage_of(plan, v), storage_of(plan, 1));
  EXPECT_EQ(plan.places[3].offset.count, 2 * 4);
  EXPECT_EQ(plan.places[3].strides, (Strides{12, 6, 1}));
  EXPECT_EQ(plan.places[5].strides, (Strides{12, 1}));
  EXPECT_EQ(plan.storages[storage_of(plan, 1)].last, static_cast<int>(plan.calls.size()))
      << "what is seen by a result lives as long";
  int views = 0;
  for (const PlannedCall& call : plan.calls) views += call.is_view;
  EXPECT_EQ(views, 3);
}

// Halves of halves lie apart: no stride says [2, 6] of them.
TEST(PlanViews, WhatStridesCannotSayIsACopy) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=2, n=12]
  %1 halves: f32[b=2, parts=2, n=6] = split(%0) {parts=2} @halves
  %2 part: f32[b=2, parts=2, n=3] = slice(%1) {size=3, start=2} @part
  %3 y: f32[b=2, n=6] = merge(%2) @y
  return %3
)");
  const Plan plan = make_plan(s, {});
  EXPECT_EQ(storage_of(plan, 2), storage_of(plan, 0));
  EXPECT_NE(storage_of(plan, 3), storage_of(plan, 0));
  EXPECT_EQ(plan.places[3].strides, (Strides{6, 1}));
  Numbers x(24), want;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  for (const int i : {2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22}) want.push_back(i);
  EXPECT_EQ(run_scheme(s, {x}, false)[0], want);
}

// A linear map of rows that no single stride reaches.
TEST(PlanViews, MayBeReadByAMatrixProduct) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=2, n=6]
  parameter %1 w: f32[o=1, n=2]
  parameter %2 bias: f32[o=1]
  %3 part: f32[b=2, n=4] = slice(%0) {size=4, start=1} @part
  %4 pairs: f32[b=2, parts=2, n=2] = split(%3) {parts=2} @pairs
  %5 y: f32[b=2, parts=2, o=1] = linear(%4, %1, %2) @y
  return %5
)");
  const Numbers x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(run_scheme(s, {x, {1, 100}, {0.5}}, false)[0], (Numbers{201.5, 403.5, 807.5, 1009.5}));
}

TEST(PlanState, ComesOutWhereItWentInAndLiesAtTheBottom) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=40]
  state %1 m: f32[n=40]
  parameter %2 p: f32[n=7]
  %3 next: f32[n=40] state = add(%1, %0) @update update
  carry %1 -> %3
  return
)");
  const Plan plan = make_plan(s, {});
  EXPECT_EQ(storage_of(plan, 1), storage_of(plan, 3));
  EXPECT_EQ(plan.offset_of(1).count, 0);
  EXPECT_EQ(plan.offset_of(2).count, 192);
  EXPECT_EQ(plan.state_end.count, 256);
  EXPECT_GE(plan.offset_of(0), plan.state_end);
}

TEST(PlanState, AnOpThatMayNotOverwriteCannotWriteIt) {
  const Scheme s = parse_scheme(R"(scheme:
  parameter %0 w: f32[n=4, n=4]
  parameter %1 v: f32[n=4, n=4]
  %2 next: f32[n=4, n=4] = linear(%0, %1) @update
  carry %0 -> %2
  return
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(make_plan(s, {}), "may overwrite");
}

// ---- beside ----

constexpr const char* kModel = R"(scheme model:
  input %0 tokens: i32[b=3, s=5]
  input %1 targets: i32[b=3, s=5]
  parameter %2 table: f32[v=11, h=8] init=normal(0.5)
  parameter %3 up.weight: f32[f=16, h=8] init=normal(0.5)
  parameter %4 up.bias: f32[f=16] init=zeros
  parameter %5 down.weight: f32[h=8, f=16] init=normal(0.5)
  %6 x: f32[b=3, s=5, h=8] = embed(%0, %2) @x
  %7 up: f32[b=3, s=5, f=16] = linear(%6, %3, %4) @up
  %8 act: f32[b=3, s=5, f=16] = gelu(%7) @act
  %9 down: f32[b=3, s=5, h=8] = linear(%8, %5) @down
  %10 sum: f32[b=3, s=5, h=8] = add(%6, %9) @sum
  %11 logits: f32[b=3, s=5, v=11] = linear(%10, %2) @logits
  %12 loss: f32[] metric, %13 loss.count: f32[] metric, %14 loss.lse: f32[b=3, s=5] = cross_entropy(%11, %1) {ignore=-1} @loss
  return %12, %13
)";

TEST(PlanBeside, SharesParametersAndStaysOutOfTheState) {
  const Scheme model = parsed(kModel);
  const Scheme step = training_step(model, {});
  const Plan host = make_plan(step, {.threads = num_threads()});
  const Plan guest = make_plan(model, beside(step, host, num_threads()));
  for (const Value in : model.inputs) {
    if (model[in].role != Role::kParameter) continue;
    EXPECT_EQ(guest.offset_of(in), host.offset_of(*step.find(model[in].source)))
        << to_string(model[in].source);
  }
  for (const Storage& s : guest.storages) {
    const bool parameter = s.tenants[0].category == Category::kParameters;
    EXPECT_EQ(s.offset < host.state_end, parameter);
  }
  EXPECT_LE(guest.arena, host.arena) << "this evaluation needs less than its training";
}

void fill_ids(Run& run) {
  for (const Value in : run.scheme().inputs) {
    if (run.scheme()[in].role != Role::kInput) continue;
    Numbers ids(run.scheme()[in].type.num_elements());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 7 % 11);
    run.set_values(in, ids);
  }
}

TEST(PlanBeside, AGuestChangesNoParameterAndNoState) {
  const Scheme model = parsed(kModel);
  const Scheme step = training_step(model, {});
  const Plan plan = make_plan(step, {.threads = num_threads()});
  adjoint::Run host(step, plan, {.poison = true});
  initialize(host, 1);
  host.set_number(*step.find({"rate"}), 0.01);
  fill_ids(host);
  host.step();
  const std::vector<std::byte> before(host.arena(), host.arena() + plan.state_end.count);
  adjoint::Run guest(model, make_plan(model, beside(step, plan, num_threads())), host,
                     {.poison = true});
  fill_ids(guest);
  guest.step();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), host.arena()));
  // What the guest says of the loss is what the host says next.
  const double loss = guest.number(model.outputs[0]) / guest.number(model.outputs[1]);
  fill_ids(host);
  host.step();
  EXPECT_FLOAT_EQ(static_cast<float>(loss), static_cast<float>(host.number(step.outputs[0])));
}

TEST(PlanBeside, StateThatTheHostLacksGetsAPlaceOfItsOwn) {
  const Scheme host = parsed(R"(scheme:
  parameter %0 p: f32[n=40]
  %1 y: f32[n=40] = gelu(%0) @y
  return %1
)");
  const Scheme guest = parsed(R"(scheme:
  parameter %0 p: f32[n=40]
  parameter %1 q: f32[n=40]
  %2 y: f32[n=40] = add(%0, %1) @y
  return %2
)");
  const Plan first = make_plan(host, {});
  const Plan second = make_plan(guest, beside(host, first, 1));
  EXPECT_EQ(second.offset_of(0), first.offset_of(0));
  EXPECT_GE(second.offset_of(1), first.state_end);
  EXPECT_GE(second.offset_of(2), second.state_end);
}

// ---- data for the next step ----

TEST(PlanLandings, OnAGpuTheNextStepsDataHasAPlaceBesideTheState) {
  const Scheme model = parsed(kModel);
  const Scheme step = training_step(model, {});
  const Plan plan = make_plan(step, {.target = Target::kCuda});
  const Plan without = make_plan(step, {.target = Target::kCuda, .landings = false});
  Bytes landed{0};
  for (const Value in : step.inputs) {
    const bool fed = step[in].role == Role::kInput || step[in].role == Role::kControl;
    ASSERT_EQ(plan.landings.count(in), fed) << to_string(step[in].source);
    if (!fed) continue;
    const Storage& s = plan.storages[plan.landings.at(in)];
    EXPECT_EQ(s.size, step[in].type.bytes());
    EXPECT_EQ(s.first, 0);
    EXPECT_EQ(s.last, static_cast<int>(plan.calls.size()));
    EXPECT_LE(s.offset + s.size, plan.state_end);  // where no guest comes
    landed += round_up(s.size, kAlignment);
  }
  EXPECT_EQ(plan.state_end, without.state_end + landed);
  EXPECT_TRUE(make_plan(step, {}).landings.empty());  // a CPU reads what lies there
  EXPECT_TRUE(make_plan(model, beside(step, plan, 1)).landings.empty());
}

// ---- a step in time ----

TEST(PlanInTime, WhatTheBodyFindsThereLivesToItsEnd) {
  const Scheme s = parsed(R"(scheme parts=3:
  input %0 x: f32[n=400]
  %1 begin: f32[n=400] = fill() {shape=[400], value=0.0} @begin prologue
  %2 table: f32[n=400] = gelu(%0) @table prologue
  %3 a: f32[n=400] = mul(%2, %0) @a
  %4 sum: f32[n=400] = add(%1, %3) @sum
  %5 b: f32[n=400] = exp(%4) @b
  %6 c: f32[n=400] = gelu(%5) @c
  %7 y: f32[n=400] = gelu(%4) @y epilogue
  loop %1 -> %4
  return %7
)");
  const Plan plan = make_plan(s, {});
  EXPECT_EQ(plan.body_begin, 2);
  EXPECT_EQ(plan.body_end, 6);
  for (const Value v : {0, 2}) {
    EXPECT_EQ(plan.storages[storage_of(plan, v)].last, 5) << "%" << v << " is read again";
  }
  EXPECT_EQ(storage_of(plan, 1), storage_of(plan, 4)) << "an accumulator grows in its place";
  EXPECT_NE(storage_of(plan, 3), storage_of(plan, 2)) << "the next iteration reads the table";
  EXPECT_NE(storage_of(plan, 5), storage_of(plan, 4)) << "the next iteration reads the sum";
  EXPECT_EQ(storage_of(plan, 6), storage_of(plan, 5)) << "within an iteration as always";
  EXPECT_EQ(storage_of(plan, 7), storage_of(plan, 4)) << "after the body it may go";
}

// The beginning of an accumulator, seen before the body, does not grow.
TEST(PlanInTime, AViewOfABeginningIsACopy) {
  const Scheme s = parsed(R"(scheme parts=3:
  input %0 x: f32[n=4]
  %1 begin: f32[n=4] = scale(%0) {by=2.0} @begin prologue
  %2 seen: f32[n=2] = slice(%1) {size=2, start=1} @seen prologue
  %3 now: f32[n=2] = slice(%1) {size=2, start=1} @now
  %4 sum: f32[n=4] = add(%1, %0) @sum
  %5 y: f32[n=2] = scale(%2) {by=3.0} @y epilogue
  loop %1 -> %4
  return %5, %4
)");
  const Plan plan = make_plan(s, {});
  EXPECT_NE(storage_of(plan, 2), storage_of(plan, 1));
  EXPECT_EQ(storage_of(plan, 3), storage_of(plan, 1));
  const auto out = run_scheme(s, {{1, 2, 3, 4}}, false);
  EXPECT_EQ(out[0], (Numbers{12, 18})) << "3 * 2 * x";
  EXPECT_EQ(out[1], (Numbers{5, 10, 15, 20})) << "2 * x + 3 parts of x";
}

// ---- tiers ----

TEST(PlanTiers, EachHasAnArenaAndStateComesOutInItsOwn) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=40]
  state %1 m: f32[n=40] host
  state %2 v: f32[n=7]
  %3 here: f32[n=40] = move(%1) {tier="device"} @here
  %4 next: f32[n=40] = add(%3, %0) @next
  %5 back: f32[n=40] state host = move(%4) {tier="host"} @back
  %6 away: f32[n=40] host = move(%0) {tier="host"} @away
  %7 again: f32[n=40] = move(%6) {tier="device"} @again
  carry %1 -> %5
  return %7
)");
  const Plan plan = make_plan(s, {.threads = num_threads()});
  EXPECT_EQ(storage_of(plan, 1), storage_of(plan, 5));
  EXPECT_EQ(plan.tier_of(1), Tier::kHost);
  EXPECT_EQ(plan.offset_of(1).count, 0);
  EXPECT_EQ(plan.offset_of(2).count, 0) << "of another arena";
  EXPECT_EQ(plan.state_end.count, 64);
  EXPECT_EQ(plan.host.state_end.count, 192);
  EXPECT_EQ(plan.host.size.count, 192 + 160);
  EXPECT_EQ(plan.host.live_peak.count, 320);
  EXPECT_EQ(plan.at_peak(Tier::kHost)[static_cast<size_t>(Category::kOptimizer)].count, 160);
  Numbers x(40, 2);
  adjoint::Run run(s, plan, {.poison = true});
  run.set_values(1, Numbers(40, 5));
  for (const double want : {7, 9}) {
    run.set_values(0, x);
    run.step();
    EXPECT_EQ(run.values(1), Numbers(40, want)) << "written into the state's own place";
    EXPECT_EQ(run.values(7), x);
  }
}

// Whoever reads the old state in place of its writer does so before.
TEST(PlanTiers, AMoveWritesStateAfterItsReaders) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=40]
  state %1 m: f32[n=40] host
  %2 back: f32[n=40] state host = move(%0) {tier="host"} @back
  %3 old: f32[n=40] = move(%1) {tier="device"} @old
  carry %1 -> %2
  return %3
)");
  const Plan plan = make_plan(s, {.threads = num_threads()});
  EXPECT_EQ(plan.calls[0].morphism, 1);
  adjoint::Run run(s, plan, {.poison = true});
  run.set_values(1, Numbers(40, 5));
  run.set_values(0, Numbers(40, 2));
  run.step();
  EXPECT_EQ(run.values(3), Numbers(40, 5));
  EXPECT_EQ(run.values(1), Numbers(40, 2));
}

TEST(PlanTiers, AGuestFindsStateInBoth) {
  const Scheme host = parsed(R"(scheme:
  parameter %0 p: f32[n=40]
  parameter %1 q: f32[n=40] host
  %2 here: f32[n=40] = move(%1) {tier="device"} @here
  %3 y: f32[n=40] = add(%0, %2) @y
  return %3
)");
  const Scheme guest = parsed(R"(scheme:
  parameter %0 q: f32[n=40] host
  input %1 x: f32[n=40]
  %2 away: f32[n=40] host = move(%1) {tier="host"} @away
  %3 here: f32[n=40] = move(%0) {tier="device"} @here
  %4 back: f32[n=40] = move(%2) {tier="device"} @back
  %5 y: f32[n=40] = add(%3, %4) @y
  return %5
)");
  Plan first = make_plan(host, {.threads = num_threads()});
  const Plan second = make_plan(guest, beside(host, first, num_threads()));
  EXPECT_EQ(second.offset_of(0), first.offset_of(1));
  EXPECT_GE(second.offset_of(2), first.host.state_end);
  EXPECT_GE(second.offset_of(3), first.state_end);
  first.make_room_for(second);
  adjoint::Run one(host, first, {.poison = true});
  adjoint::Run two(guest, second, one, {.poison = true});
  one.set_values(1, Numbers(40, 3));
  two.set_values(1, Numbers(40, 4));
  two.step();
  EXPECT_EQ(two.values(5), Numbers(40, 7));
  EXPECT_EQ(one.values(1), Numbers(40, 3));
}

}  // namespace
}  // namespace adjoint
